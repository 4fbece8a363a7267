package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"

	"tierway/tiers"
	"tierway/tierscore"
)

// Learning configures the collection of features and labels, with exploration and repeated requests, and a model that
// scores requests.
type Learning struct {
	HashKey string `yaml:"hash_key" secret:"true" absent:"requests have no features" doc:"Key of at least 16 bytes for the hashes of words and routes. Write it as ${NAME} of an environment variable. A model and features with different keys do not match, so keep the key, and give all gateways the same one."`
	Model   string `yaml:"model" form:"model" absent:"none" doc:"File of 'tierway train'. It is read at the start and at each reload. The record of each classified request has its score. A relative path is resolved against the directory of this file. Needs 'hash_key'."`
	Decide  bool   `yaml:"decide" doc:"'classifier.share' orders the prompts by the score of 'model'. 'false': the score is recorded and decides nothing."`

	Directory   string  `yaml:"directory" reload:"restart" absent:"nothing is written" doc:"Directory of features.jsonl (one line for each classified request that an engine answered, without text) and labels.jsonl (feedback, escalations and repeated requests), which 'tierway train' reads. It is created if it does not exist. A relative path is resolved against the directory of this file. Needs 'hash_key'."`
	MaxSize     Size    `yaml:"max_size" reload:"restart" doc:"Size at which each file of 'directory' is rotated. At least 1 MiB."`
	MaxFiles    int     `yaml:"max_files" min:"1" max:"100" reload:"restart" doc:"Number of files that are kept of features.jsonl and of labels.jsonl, including the current one. The oldest is deleted."`
	Exploration float64 `yaml:"exploration" max:"0.1" zero:"true" doc:"Share of the classified requests that get the first or the last tier at random, with equal probability. Their answers show how the other tier answers, so that labels of all these answers can evaluate a model. Requests are not explored if they name a tier, cannot get both tiers, or belong to a chat with a remembered tier."`

	Replay Replay `yaml:"replay" doc:"Requests that are repeated on the first and the last tier, for labels."`
}

type learnedModel struct {
	*tierscore.Model
	hash string // SHA-256 of the file, in hex
}

// Extractor returns the extractor of features, or nil without learning.hash_key.
func (f *File) Extractor() *tierscore.Extractor {
	if f.Learning.HashKey == "" {
		return nil
	}
	return tierscore.NewExtractor(f.Learning.HashKey)
}

// Model returns the model of learning.model, or nil.
func (f *File) Model() *tierscore.Model {
	if f.model == nil {
		return nil
	}
	return f.model.Model
}

// tiersModel returns the model for the classifier; nil without one.
func (f *File) tiersModel() *tiers.Model {
	if f.model == nil {
		return nil
	}
	return &tiers.Model{Score: f.model.Model, Hash: f.model.hash, Decides: f.Learning.Decide}
}

// checkLearning checks the section. It follows readModel and checkCatalog. No message shows the key.
func (d *decoder) checkLearning(f *File) {
	d.checkLearningFiles(f)
	d.checkReplay(f)
	d.checkHashes(f)
	if f.Learning.Decide {
		d.checkDecide(f)
	}
}

// checkHashes checks the key, and that features with it suit the model. No message shows the key.
func (d *decoder) checkHashes(f *File) {
	const key, model = "learning.hash_key", "learning.model"
	c := f.Learning
	switch n := len(c.HashKey); {
	case n < tierscore.MinKeyLength && d.written(key):
		d.report(key, fmt.Sprintf("has %d bytes; the minimum is %d", n, tierscore.MinKeyLength),
			"generate one with `openssl rand -hex 32`").hide = true
	case n == 0 && c.Model != "":
		d.report(model, "has no effect without "+key,
			"set hash_key to the key of the hashes with which the model was trained")
	case f.model != nil && !f.model.Matches(f.Extractor()):
		d.report(model, d.shown(model, c.Model)+" was trained with another key than "+key+
			", so no request would have a score", "set the key of the training, or train again")
	}
}

func (d *decoder) checkDecide(f *File) {
	const path = "learning.decide"
	switch {
	case f.Learning.Model == "":
		d.report(path, "there is no model", "set learning.model to a file of tierway train, or remove the key")
	case f.model == nil: // reported before
	case !f.model.Enabled:
		var report struct{ Reason string }
		_ = json.Unmarshal(f.model.Report, &report) // a model without a reason is not enabled either
		d.report(path, "the model is not enabled: "+cmp.Or(printable(report.Reason), "its training had no result"),
			"collect more labels and train again with tierway train, or remove the key")
	case f.catalog != nil && !f.catalog.Classifier().HasShares():
		d.report(path, "no share orders prompts by a score",
			"write classifier.share, such as share: { large: 0.2 }, or preset: graded; or remove the key")
	}
}

// readModel reads the model's file. A draft may not read files; it has the model of the file beside which it is
// evaluated, or none.
func (d *decoder) readModel(f *File) {
	const path = "learning.model"
	switch file := f.Learning.Model; {
	case file == "":
		return
	case !d.draft:
		f.model = d.modelOf(path, file)
	case beside(d.live.path, file) == d.live.Learning.Model:
		f.model = d.live.model
	case f.Learning.Decide:
		d.report(path, "a draft may not read another model than that of the active configuration",
			"write the path of that model, or learning.decide: false")
	}
}

// modelOf returns the model in a file. It reports a file without one.
func (d *decoder) modelOf(path, file string) *learnedModel {
	text, err := readFile(beside(d.file, file))
	var model *tierscore.Model
	if err == nil {
		model, err = tierscore.Read(bytes.NewReader(text))
	}
	if err != nil {
		d.report(path, fmt.Sprintf("cannot use %s: %v", d.shown(path, file), withoutPath(err)),
			"name a file that tierway train of this release has written")
		return nil
	}
	return &learnedModel{model, hashOf(text)}
}

// Names of the files in learning.directory.
const (
	featuresFile = "features.jsonl"
	labelsFile   = "labels.jsonl"
)

// FeaturesFile returns the path of the file of features. Learning.Directory must not be empty.
func (l *Learning) FeaturesFile() string { return filepath.Join(l.Directory, featuresFile) }

// LabelsFile returns the path of the file of labels. Learning.Directory must not be empty.
func (l *Learning) LabelsFile() string { return filepath.Join(l.Directory, labelsFile) }

func (d *decoder) checkLearningFiles(f *File) {
	c := f.Learning
	d.checkFileSize("learning.max_size", c.MaxSize)
	if c.Directory == "" {
		for _, path := range [...]string{"learning.max_size", "learning.max_files", "learning.exploration"} {
			if d.written(path) && (path != "learning.exploration" || c.Exploration > 0) {
				d.warn(path, "has no effect without learning.directory", "set learning.directory, or remove the key")
			}
		}
		return
	}
	if c.HashKey == "" && !d.reported["learning.hash_key"] {
		d.report("learning.directory", "requests have no features without learning.hash_key",
			"set hash_key to a key of at least 16 bytes")
	}
	for _, name := range [...]string{featuresFile, labelsFile} {
		if file := d.absolute(filepath.Join(c.Directory, name)); f.Decisions.File != "" &&
			file == d.absolute(f.Decisions.File) {
			d.report("decisions.file", d.shown("decisions.file", f.Decisions.File)+" is a file of learning.directory",
				"use a separate file, such as decisions.jsonl")
		}
	}
}
