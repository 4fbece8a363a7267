package imports

import (
	"fmt"
	"strings"
)

// hookList translates the hooks of the fork, which pass requests unless on_error says otherwise.
func hookList(d *builder, s setting) {
	items := s.items()
	if len(items) == 0 {
		d.leave(s, "it is not a list of hooks; write hooks")
		return
	}
	n, longest := 0, 0
	for i, item := range items {
		url := item.at("url")
		if text, _ := url.text(); text == "" {
			d.leave(item, "the hook has no url")
			continue
		}
		at := func(key string) string { return fmt.Sprintf("hooks[%d].%s", n, key) }
		name, _ := item.at("name").text()
		d.set(at("name"), hookName(name, i), item, "")
		d.set(at("url"), url.node, url, "")
		for _, k := range item.pairs() {
			text, _ := k.text()
			switch k.name {
			case "name", "url", "on_error":
			case "timeout_ms":
				var ms int
				if _, err := fmt.Sscan(text, &ms); err == nil {
					longest = max(longest, ms)
				}
				d.set(at("timeout"), text+"ms", k, "")
			case "on_reject", "transform":
				d.set(at(k.name), k.node, k, "")
			default:
				d.leave(k, unknownKey)
			}
		}
		if set := item.at("on_error"); set.node != nil {
			d.set(at("on_error"), set.node, set, "")
		} else {
			d.set(at("on_error"), "pass", item,
				"the fork's default; with block, no request passes unchecked while the hook fails")
		}
		n++
	}
	if longest > 1000 { // the default of hooks_timeout
		d.set("hooks_timeout", fmt.Sprintf("%dms", longest*n), s, "for all hooks of a request together")
	}
}

// hookName returns a name as a name of config.yaml. number is that of the hook, for a hook without a name.
func hookName(name string, number int) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "._-")
	if name == "" {
		return fmt.Sprintf("hook-%d", number)
	}
	return name[:min(len(name), 63)]
}
