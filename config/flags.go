package config

import (
	"fmt"
	"strings"

	"tierway/workers"
)

// FromFlags returns the configuration of a start without a file: one tier
// named default whose workers serve model at urls, without keys. An empty
// listen or adminListen is the default's; neither may be anything but
// loopback. The error is a Problems without lines, whose paths are flags.
func FromFlags(model string, urls []string, listen, adminListen string) (*File, error) {
	f := Default()
	f.Auth.Required = false
	f.Store.SQL = "" // a trial leaves no file behind
	if listen != "" {
		f.Listen = listen
	}
	if adminListen != "" {
		f.Admin.Listen = adminListen
	}
	tier := Tier{Name: "default", Model: model}
	for i, url := range urls {
		tier.Workers = append(tier.Workers, workers.Config{Name: fmt.Sprintf("worker-%d", i), URL: strings.TrimSpace(url)})
	}
	f.Tiers = []Tier{tier}

	d := newDecoder("command line", nil)
	if model == "" {
		d.fault("tiers[0].model", "missing", "name the model that the workers serve")
	}
	if len(urls) == 0 {
		d.fault("tiers[0].workers", "missing", "give their URLs, such as --worker-urls http://127.0.0.1:8000")
	}
	for i, w := range tier.Workers {
		if w.URL == "" {
			d.fault(fmt.Sprintf("tiers[0].workers[%d].url", i), "is empty", "remove the comma too many")
		}
	}
	d.told["auth.required"] = true // nobody asked for false: of an open address only the address is told
	d.check(&f)
	for i := range d.problems {
		p := &d.problems[i]
		nameFlag(p)
		if (p.Path == "--listen" || p.Path == "--admin-listen") && !strings.HasPrefix(p.Hint, "write host:port") {
			p.Hint = "without a configuration file every address is loopback; write one and pass it with --config"
		}
	}
	return d.finish(&f)
}

// nameFlag replaces what a problem calls a value of the file by the flag that
// it came from.
func nameFlag(p *Problem) {
	flags := strings.NewReplacer("tiers[0].model", "--model", "tiers[0].workers", "--worker-urls", "].url", "]", "admin.listen", "--admin-listen")
	p.Path, p.Message = flags.Replace(p.Path), flags.Replace(p.Message)
	if p.Path == "listen" {
		p.Path = "--listen"
	}
}
