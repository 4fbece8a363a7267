// Package learning writes what `tierway train` reads: the features of classified requests, and labels that state
// whether an answer was right. Both are files of JSON lines in learning.directory, without text.
//
// Labels come from clients (POST /v1/feedback) and from escalations: a client sends a prompt again and names a higher
// tier than the one that answered. Store finds escalations by the hashes of the prompts that were answered last.
package learning
