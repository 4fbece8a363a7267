package main

import (
	"encoding/hex"
	"fmt"
	"os"

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

// tierwayConf is the gateway with its whole path on: a tenant's key, a model
// alias that has the body rewritten, a policy, metrics, and a log line a request.
func tierwayConf(worker, key string) string {
	digest := tenants.Digest(key)
	return fmt.Sprintf(`auth:
  required: true
  keys:
    - { name: bench, sha256: %q }
policy: { name: least_load }
tiers:
  - name: bench
    model: %s
    workers:
      - { name: fixed, url: "http://%s" }
models: { %q: bench }
log: { access: true }
drain: { accept_grace: 0s, timeout: 1s }
`, hex.EncodeToString(digest[:]), served, worker, alias)
}
