// Package tierscore scores a request by a model that learned from labels of the operator's own traffic. The score
// orders requests: the higher it is, the more a large model is expected to gain over a small one.
//
// [Extractor.Extract] extracts the features of a request, and [Model.Score] scores them. Both are pure and do not
// allocate. Package training makes a [Model] from recorded features and labels.
package tierscore
