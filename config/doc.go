// Package config reads, checks and prints config.yaml.
//
// # Sections
//
// [File] is the whole configuration. It composes the sections that other packages declare, such as
// breaker.Config and routing.Config, and owns those that only the server reads. Each key is declared
// once, by the struct tags of its field: name, meaning, bounds, form, and the effect of a reload. The
// decoder, the printed form, [Changes], docs/config.md and docs/config.schema.json all derive from these
// tags, which tags.go lists.
//
// # Loading
//
// [Load] reads a file over the values of [Default]. It replaces ${NAME} by environment variables, reads
// the workers' keys from the environment, and checks each value and all combinations. It is strict:
// unknown and duplicate keys are errors. [Parse] does the same for a text, [FromFlags] for the flags of
// a start without a file, and [File.Draft] for a configuration that is only evaluated.
//
// The error is a [Problems]: all problems at once, each with line, column, path, message and hint.
// [Problems.Format] prints them with their source lines. A valid file may have [File.Warnings].
//
// A loaded File is immutable. [File.ResolvedPools] returns its tiers and pools with inherited values.
//
// # Reloading
//
// [Watch] reports changes of the file. [Changes] compares two configurations and names the effect of
// each change: live, drain or restart. [File.KeepRestartOnly] returns the configuration that is active
// after a reload, in which keys that need a restart keep their old values.
//
// # Secrets
//
// No message and no printed form contains a value from the environment, a key or a password. Every verb
// of package fmt prints a File in its redacted form.
package config
