// Package docs runs what the documents show: every YAML block is a valid
// configuration, every curl a request that succeeds.
package docs
