package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tierway/workers"
)

// FromFlags returns the configuration of a start without a file and without keys. One model
// forms a tier named default. Several models are written MODEL=TIER, least capable first, and
// every worker at urls serves all of them. hosts are the host names of the gateway. An empty
// listen or adminListen means the default; both must be loopback. The error is a Problems
// without lines, with flags as paths.
func FromFlags(models, urls, hosts []string, listen, adminListen string) (*File, error) {
	f := Default()
	f.Auth.Required, f.Hosts = false, hosts
	f.Store.SQL = "" // a trial leaves no file
	f.Listen, f.Admin.Listen = cmp.Or(listen, f.Listen), cmp.Or(adminListen, f.Admin.Listen)
	d := newDecoder("command line", nil)
	f.Tiers = d.flagTiers(models, urls)
	d.reported["auth.required"] = true // not set by the user; only an open address is reported
	d.check(&f)
	for i := range d.problems {
		p := &d.problems[i]
		nameFlag(p, len(models) > 1)
		if (p.Path == "--listen" || p.Path == "--admin-listen") && !strings.HasPrefix(p.Hint, "write host:port") {
			p.Hint = "without a configuration file, addresses must be loopback: write a file with keys and pass it with --config"
		}
	}
	started, err := d.finish(&f)
	if err != nil {
		return nil, err
	}
	started.origins = originsOfFlags(started, listen, adminListen)
	return started, nil
}

// originsOfFlags returns the origins of a start without a file. An empty listen or adminListen is not set.
func originsOfFlags(f *File, listen, adminListen string) *origins {
	const trial = "of a start without a configuration file"
	set := map[string]Origin{
		"auth.required": {Source: originFlag, Detail: trial},
		"store.sql":     {Source: originFlag, Detail: trial},
		"tiers":         {Source: originFlag, Detail: "set by --model and --worker-urls"},
	}
	if len(f.Hosts) > 0 {
		set["hosts"] = Origin{Source: originFlag, Detail: "set by --hosts"}
	}
	return (*origins)(nil).replace(set).listenFlags(listen, adminListen)
}

// listenFlags returns a copy in which the addresses that are not empty come from flags.
func (o *origins) listenFlags(listen, adminListen string) *origins {
	set := map[string]Origin{}
	if listen != "" {
		set["listen"] = Origin{Source: originFlag, Detail: "set by --listen"}
	}
	if adminListen != "" {
		set["admin.listen"] = Origin{Source: originFlag, Detail: "set by --admin-listen"}
	}
	return o.replace(set)
}

// flagTiers returns the tiers of the flags, each with one worker per URL.
func (d *decoder) flagTiers(models, urls []string) (tiers []Tier) {
	if len(models) == 0 {
		models = []string{""}
		d.report("tiers[0].model", "missing", "set the model that the workers serve")
	}
	seen := map[string]string{}
	for i, model := range models {
		tier, prefix, path := Tier{Name: "default", Model: model}, "worker", fmt.Sprintf("tiers[%d].model", i)
		if at := strings.LastIndex(model, "="); at >= 0 || len(models) > 1 {
			tier.Model, tier.Name = model[:max(at, 0)], model[at+1:]
			prefix = tier.Name
			switch first := seen[tier.Name]; {
			case tier.Model == "" || tier.Name == "":
				d.report(path, quote(model)+" is not MODEL=TIER", "write the model and its tier, such as qwen2.5:7b=small")
				continue
			case !isForm("name", tier.Name):
				d.report(path, "the tier "+quote(tier.Name)+" is not a valid name", "write "+forms["name"].want)
				continue
			case first != "":
				d.report(path, "the tier "+quote(tier.Name)+" already has the model of "+first,
					"choose a different tier for each model")
				continue
			}
			seen[tier.Name] = path
		} else if strings.TrimSpace(model) == "" {
			d.report(path, "is empty", "set the model that the workers serve")
		}
		for j, url := range urls {
			at := fmt.Sprintf("tiers[%d].workers[%d].url", len(tiers), j)
			tier.Workers = append(tier.Workers,
				workers.Config{Name: fmt.Sprintf("%s-%d", prefix, j), URL: strings.TrimSpace(url)})
			switch {
			case len(tiers) > 0:
				d.reported[at] = true // a URL in several tiers is intended here
			case tier.Workers[j].URL == "":
				d.report(at, "is empty", "remove the extra comma")
			}
		}
		tiers = append(tiers, tier)
	}
	if len(urls) == 0 {
		d.report("tiers[0].workers", "missing", "set the workers' URLs, such as --worker-urls http://127.0.0.1:8000")
	}
	return tiers
}

var flagPath = regexp.MustCompile(`tiers\[(\d+)\]\.(model|name|workers(?:(\[\d+\])\.(?:url|name))?)`)

// nameFlag replaces the file path in a problem by the flag of the value. several means that
// --model was given more than once.
func nameFlag(p *Problem, several bool) {
	flag := func(path string) string {
		part := flagPath.FindStringSubmatch(path)
		switch {
		case strings.HasPrefix(part[2], "workers"):
			return "--worker-urls" + part[3]
		case several:
			return "--model[" + part[1] + "]"
		}
		return "--model"
	}
	p.Path = strings.Replace(p.Path, "hosts[", "--hosts[", 1)
	for _, text := range []*string{&p.Path, &p.Message} {
		*text = strings.ReplaceAll(flagPath.ReplaceAllStringFunc(*text, flag), "admin.listen", "--admin-listen")
	}
	if p.Path == "listen" {
		p.Path = "--listen"
	}
}

// WithListen returns the configuration with other addresses, which are checked like the file's:
// a flag cannot open what the file forbids. An empty address keeps the file's. Warnings refer
// to the resulting addresses. The error is a Problems without lines.
func (f *File) WithListen(listen, adminListen string) (*File, error) {
	out := *f
	out.Listen, out.Admin.Listen = cmp.Or(listen, f.Listen), cmp.Or(adminListen, f.Admin.Listen)
	d := newDecoder("command line", nil)
	d.checkAddresses(&out)
	if d.problems.Failed() {
		for i := range d.problems {
			nameFlag(&d.problems[i], false)
		}
		return nil, d.problems.sorted()
	}
	out.origins = f.origins.listenFlags(listen, adminListen)
	// An unchanged address keeps the file's warning, which has a line.
	moved := map[string]bool{"insecure": out.Listen != f.Listen, "admin.insecure": out.Admin.Listen != f.Admin.Listen}
	out.warnings = slices.DeleteFunc(slices.Clone(f.warnings), func(w Problem) bool {
		elsewhere, isOpen := moved[w.Path]
		return isOpen && (elsewhere || !d.problems.at(w.Path))
	})
	for _, w := range d.problems {
		if !out.warnings.at(w.Path) {
			out.warnings = append(out.warnings, w)
		}
	}
	return &out, nil
}

func (ps Problems) at(path string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Path == path })
}
