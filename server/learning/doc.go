// Package learning writes what `tierway train` reads: the features of classified requests, and labels that state
// whether an answer was right. Both are files of JSON lines in learning.directory, without text.
//
// Labels have three sources: feedback of clients (POST /v1/feedback), repeated requests (learning.replay, of package
// repeats), and escalations. An escalation is a prompt that a client sends again with a higher tier than the one that
// answered. Store finds escalations by the hashes of the prompts that were answered last.
package learning
