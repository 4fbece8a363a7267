package config

import "reflect"

// otherPolicies are the routing policies that a build may lack.
var otherPolicies = [...]string{
	"round_robin", "weighted_round_robin", "random", "least_load", "power_of_two", "least_latency",
	"consistent_hash", "rendezvous_hash", "chwbl", "cache_aware", "kv_aware", "kv_overlap",
}

// unbuilt holds the keys that belong to features which this build does not
// have, by section and name, each with its feature. They are refused by that
// name: a limit that is read and not kept would be worse than none.
var unbuilt = map[string]string{
	"config.File.session_keys":     "session affinity",
	"config.File.trust_request_id": "session affinity",

	"routing.Config.min_score":      "routing by KV cache",
	"routing.Config.medium_credit":  "routing by KV cache",
	"routing.Config.kv_events":      "routing by KV cache",
	"routing.Config.block_size":     "routing by KV cache",
	"routing.Config.tokenizer":      "routing by KV cache",
	"routing.Config.lookup_timeout": "routing by KV cache",

	"workers.Config.events": "KV events",
	"workers.Config.replay": "KV events",
	"workers.Config.region": "regions",
}

// secretWords are keys under which someone would write a secret into the file.
var secretWords = map[string]bool{
	"api_key": true, "apikey": true, "key": true, "token": true, "password": true, "secret": true,
	"authorization": true, "bearer": true, "bearer_token": true, "auth_token": true,
}

// secretHint says where a secret of a section goes instead.
func secretHint(section reflect.Type) string {
	if section == reflect.TypeFor[Store]() {
		return "the URL takes it from the environment: postgres://user:${PASSWORD}@host/database"
	}
	f := fieldsOf(section)
	if _, ok := f.index["api_key_env"]; ok {
		return "put it into an environment variable and name that: api_key_env"
	}
	if _, ok := f.index["sha256"]; ok {
		return `write its digest: sha256, from printf %s "$KEY" | sha256sum`
	}
	return "a worker's key is named by api_key_env, a tenant's is known by its sha256"
}
