// Package tiers decides which tier or pool a request goes to, and under which model name.
//
// A Catalog is the compiled configuration: the targets, the names and globs that lead to them,
// and the rules of the classifier. Resolve returns a Resolution with the target and the rule
// that decided. The steps are, in this order:
//
//  1. The model name: tiers, served models and aliases by exact name, then globs, the longest
//     first. The name of a served model pins the request to its target.
//  2. The classifier, if the name is "auto" or empty, or an alias of "classify".
//  3. The chat: a chat does not move to a lower tier while it is remembered. Some requests of new
//     chats get the first or the last tier at random.
//  4. The permissions of the tenant: the tier is clamped to the nearest allowed one.
//  5. X-Model-Tier, which overrides the steps before it among the tiers, and is clamped too. A
//     request with a known tier in this header is not classified.
//  6. The context: a prompt that does not fit moves to the next higher tier where it fits.
//  7. Availability: if a tier has no worker up, its requests move to another tier.
//
// A request with a list of targets, by its alias or by the fallback of its target, gets the first of them
// that can take it, in place of the last two steps. FallBack moves it on later.
//
// # Classifier
//
// The classifier has three signals, and each may request a tier: the tokens of the prompt, the
// max_tokens of the request, and keyword groups that match the last user turn or the system
// prompt. In mode max the highest requested tier is used, in mode first_match the first one.
//
// A prompt's tokens are estimated from its bytes, and counted only if the estimate is too near a
// threshold. Keywords are regular expressions. One pass finds the literals that they require,
// and an expression runs only in a window around its own literals, so that the time is linear
// in the text. Of a long text, only the first and last 8 KiB are searched.
//
// # Records
//
// The Evidence of a classification has names and numbers only. ResolveRecorded resolves a
// recorded request from it, under any Catalog, without its text.
package tiers
