// Package responsecache keeps answers of engines for requests that come again. An answer is found only under the
// partition for which it was kept: one owner, pool, model and endpoint.
package responsecache
