package config

import (
	"fmt"
	"path/filepath"
)

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
	if c.MaxSize > 0 && c.MaxSize < leastFileSize {
		d.report("learning.max_size", fmt.Sprintf("%v is less than the minimum of %v", c.MaxSize, leastFileSize),
			fmt.Sprintf("set at least %v", leastFileSize))
	}
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
