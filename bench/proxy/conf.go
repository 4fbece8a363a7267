package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"tierway/tenants"
)

// nginxConf returns a configuration that is usual in front of an engine: it keeps connections
// to the worker, holds bodies in memory, streams responses and logs nothing.
func nginxConf(dir, listen, worker string) string {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // nginx's own user may not enter the temporary directory
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

// tierwayConf returns the configuration of a gateway that does all its work: it checks a
// tenant's key, resolves a model alias, writes a ledger to its own database and an access log.
func tierwayConf(name, worker, key, redis string) string {
	digest := tenants.Digest(key)
	return fmt.Sprintf(`auth:
  required: true
  keys:
    - { name: bench, sha256: %q }
store: { sql: "sqlite://%s.db", redis: %q }
policy: { name: least_load }
tiers:
  - name: bench
    model: %s
    workers:
      - { name: fixed, url: "http://%s" }
models: { %q: bench }
drain: { accept_grace: 0s, timeout: 1s }
`, hex.EncodeToString(digest[:]), name, redis, served, worker, alias)
}

// silentConf turns off all records of requests except the metrics.
func silentConf() string { return "log: { access: false }\ndecisions: { keep: 0 }\n" }

// Shares of traced requests.
const (
	traceAll = 1.0
	traceFew = 0.01 // as busy gateways set telemetry.sample
)

// watchedConf turns on all records: a share of the requests is traced, each decision is kept and written to a file, and
// each request has a line in the access log.
func watchedConf(collector, dir, name string, share float64) string {
	return fmt.Sprintf("log: { access: true }\ndecisions: { keep: 2000, file: %q }\ntelemetry: { otlp: \"http://%s\", "+
		"sample: %g }\n",
		filepath.Join(dir, name+".jsonl"), collector, share)
}
