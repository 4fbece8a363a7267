package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"tierway/tenants"
)

// nginxConf is nginx as it is set up before an engine: connections to the worker
// are kept, bodies stay in memory, answers go out as they come, nothing is logged.
func nginxConf(dir, listen, worker string) string {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // its own user may not enter the temporary directory
	}
	return user + fmt.Sprintf(`daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.err crit;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    client_body_buffer_size 128k;
    client_max_body_size 32m;
    keepalive_requests 100000000;
    upstream worker {
        server %[3]s;
        keepalive 128;
        keepalive_requests 100000000;
    }
    server {
        listen %[2]s;
        location / {
            proxy_pass http://worker;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }
    }
}
`, dir, listen, worker)
}

// tierwayConf is a gateway of that name with its whole path on: a tenant's key, a
// model name to resolve, a ledger in a database of its own and an access log.
func tierwayConf(name, worker, key string) string {
	digest := tenants.Digest(key)
	return fmt.Sprintf(`auth:
  required: true
  keys:
    - { name: bench, sha256: %q }
store: { sql: "sqlite://%s.db" }
policy: { name: least_load }
tiers:
  - name: bench
    model: %s
    workers:
      - { name: fixed, url: "http://%s" }
models: { %q: bench }
drain: { accept_grace: 0s, timeout: 1s }
`, hex.EncodeToString(digest[:]), name, served, worker, alias)
}

// The gateway with nothing but what its metrics need, and with all that can be
// watched: every request traced, its record kept and written, its line logged.
func silentConf() string { return "log: { access: false }\ndecisions: { keep: 0 }\n" }

func watchedConf(collector, dir, name string) string {
	return fmt.Sprintf("log: { access: true }\ndecisions: { keep: 2000, file: %q }\ntelemetry: { otlp: \"http://%s\", "+
		"sample: 1.0 }\n",
		filepath.Join(dir, name+".jsonl"), collector)
}
