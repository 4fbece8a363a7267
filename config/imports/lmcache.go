package imports

// lmcacheFlags returns the keys of a policy in the fork's YAML by the names of flags.
func lmcacheFlags() map[string]string {
	return map[string]string{"lmcache_controller_url": "controller_url", "lmcache_poll_interval": "poll_interval_secs",
		"lmcache_cache_weight": "cache_weight", "lmcache_lookup_mode": "lookup_mode",
		"lmcache_controller_timeout_ms": "controller_timeout_ms", "lmcache_fallback_policy": "fallback_policy",
		"lmcache_controller_api_key": "controller_api_key"}
}

// controllerKey returns the rule for the key of LMCache's controller: its variable is written, never the key.
func controllerKey(path string) rule {
	return func(d *builder, s setting) {
		name := "LMCACHE_CONTROLLER_API_KEY"
		if text, _ := s.text(); wholeVariable.MatchString(text) {
			name = wholeVariable.FindStringSubmatch(text)[1]
		}
		d.set(path, name, s, "export this variable with the key of the controller")
	}
}

// workerMap returns the rule for the map from instances of LMCache to workers.
func workerMap(path string) rule {
	return func(d *builder, s setting) {
		workers := map[string]string{}
		for _, pair := range s.pairs() {
			if text, ok := pair.text(); ok {
				workers[pair.name] = text
			} else {
				d.leave(pair, "want the URL or the name of a worker")
			}
		}
		d.set(path, workers, s, "")
	}
}
