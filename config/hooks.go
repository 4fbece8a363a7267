package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"tierway/hooks"
	"tierway/openai"
)

// maxEnvelope is the largest size of a hook's answer beside the changed body, in bytes: its other members or headers.
const maxEnvelope = 64 << 10

// HookSpecs returns every hook of the file with its defaults, in order, including the hooks' keys: do not print them.
func (f *File) HookSpecs() []hooks.Spec {
	var specs []hooks.Spec
	for _, c := range resolvedHooks(f.Hooks) {
		specs = append(specs, hooks.Spec{Config: c, Key: f.Key(c.APIKeyEnv), ConnectTimeout: f.Timeouts.Connect,
			MaxReply: int64(f.MaxBodyBytes) + maxEnvelope})
	}
	return specs
}

func resolvedHooks(list []hooks.Config) []hooks.Config {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].Resolved()
	}
	return list
}

func (d *decoder) checkHooks(f *File) {
	if len(f.Hooks) == 0 {
		if d.written("hooks_timeout") {
			d.warn("hooks_timeout", "has no effect without hooks", "add hooks, or remove the key")
		}
		return
	}
	names := map[string]string{}
	for i, c := range f.Hooks {
		path := itemPath("hooks", i)
		d.checkUnique(names, path+".name", c.Name)
		secure := d.checkHookURL(f, path+".url", c)
		if c.TLS != nil && !secure && c.URL != "" {
			d.warn(path+".tls", "has no effect: the URL begins with neither https nor grpcs",
				"change the url, or remove the section")
		}
		d.checkCertificates(path+".tls", c.TLS, true)
		d.checkKey(path+".api_key_env", c.APIKeyEnv, "the hook's key")
		d.checkKeyFile(path, c.APIKeyFile, c.APIKeyEnv)
		if c.Timeout > f.HooksTimeout {
			d.report(path+".timeout", fmt.Sprintf("%v exceeds hooks_timeout (%v), which ends the call earlier", c.Timeout,
				f.HooksTimeout), "lower it, or raise hooks_timeout")
		}
		d.checkHookEffects(path, c)
	}
	d.checkUnhooked(f)
}

// checkHookEffects warns of hooks that let requests pass unchecked, and of keys without effect.
func (d *decoder) checkHookEffects(path string, c hooks.Config) {
	switch {
	case c.Shadow && c.OnError == hooks.Block:
		d.warn(path+".on_error", "has no effect with shadow: true", "remove the key, or remove shadow")
	case c.Resolved().Enforces() && c.OnError == hooks.Pass:
		d.warn(path+".on_error", "requests are not checked while the hook fails, for example after a time-out",
			"write block if no request may pass unchecked")
	}
}

// checkHookURL checks the URL of a hook, and reports whether its connections use TLS.
func (d *decoder) checkHookURL(f *File, path string, c hooks.Config) (secure bool) {
	if c.URL == "" {
		return false
	}
	server, secure, err := hooks.CheckURL(c.Resolved().Type, c.URL)
	if err != nil {
		d.report(path, "the URL "+err.Error(), "").hide = strings.ContainsAny(c.URL, "@?")
		return false
	}
	u, err := url.Parse(server)
	if err != nil {
		return secure
	}
	for _, l := range listeners(f) {
		if leadsTo(u.Host, l.address) {
			d.report(path, d.shown(path, c.URL)+" is the gateway's own address ("+l.path+"), so calls would loop",
				"write the URL of the hook's service")
		}
	}
	return secure
}

// checkUnhooked warns of requests that reach an engine without the hooks, which the owner of a guardrail must know.
func (d *decoder) checkUnhooked(f *File) {
	if !slices.ContainsFunc(f.Hooks, func(c hooks.Config) bool { return c.Resolved().Enforces() }) {
		return
	}
	for _, s := range f.sections() {
		if path := s.path + ".paths"; len(s.Paths) > 0 {
			d.warn(path, "requests on these paths are not sent to the hooks", "remove the paths that must be checked")
		}
		if slices.ContainsFunc(s.serves(), func(kind string) bool {
			return kind == openai.Audio.String() || kind == openai.Images.String()
		}) {
			d.warn(s.path+".serves", "forms with files (multipart/form-data) for audio and images are not sent to the hooks; "+
				"JSON bodies are", "remove audio and images if such requests must be checked")
		}
	}
}
