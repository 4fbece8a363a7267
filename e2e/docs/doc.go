// Package docs verifies what the documents show: each YAML block is a valid configuration, and each
// shell command succeeds, or stands in notRun with the reason why no test runs it.
package docs
