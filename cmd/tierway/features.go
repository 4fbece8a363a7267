package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/tiers"
	"tierway/tierscore"
	"tierway/tierscore/training"
)

type featuresFlags struct {
	config, hashKeyFile string
	requests            []string
}

func featuresCommand() *cobra.Command {
	var f featuresFlags
	c := &cobra.Command{
		Use:   "features",
		Short: "Print the features of requests, without their text, for tierway train",
		Example: "  tierway features -c config.yaml --hash-key-file hash.key -f requests.jsonl > features.jsonl\n" +
			"  zcat requests.jsonl.gz | tierway features -c config.yaml --hash-key-file hash.key -f - > features.jsonl",
		Long: "Reads lines with id, ts, tenant and the body of a request, and prints a line of features for each, with\n" +
			"hashes and counters, and with the default score of the configuration in the field baseline.\n" +
			"docs/training.md describes the files.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVarP(&f.config, "config", "c", "config.yaml", "configuration file")
	c.Flags().StringArrayVarP(&f.requests, "file", "f", nil,
		"file of requests, one per line; - for standard input; repeat for several files")
	c.Flags().StringVar(&f.hashKeyFile, "hash-key-file", "",
		"file with the key of the hashes, at least 16 bytes (default: learning.hash_key)")
	c.MarkFlagsOneRequired("file")
	return c
}

func (f featuresFlags) run(c *cobra.Command) error {
	file, err := loadConfig(c, f.config)
	if err != nil {
		return err
	}
	key := file.Learning.HashKey
	if f.hashKeyFile != "" {
		text, err := os.ReadFile(f.hashKeyFile)
		if err != nil {
			return err
		}
		if key = string(bytes.TrimSpace(text)); len(key) < tierscore.MinKeyLength {
			return fmt.Errorf("--hash-key-file %s has %d bytes: write at least %d", f.hashKeyFile, len(key),
				tierscore.MinKeyLength)
		}
	}
	out := bufio.NewWriter(c.OutOrStdout())
	p := featuresPrinter{classifier: file.Catalog().Classifier(), extractor: tierscore.NewExtractor(key), out: out}
	err = eachFile(c, f.requests, func(name string, in io.Reader) error {
		return training.EachLine(name, in, maxRequestLine, p.printLine)
	})
	// The lines before an error are complete.
	return errors.Join(err, out.Flush())
}

type featuresPrinter struct {
	classifier *tiers.Classifier
	extractor  *tierscore.Extractor
	out        io.Writer
}

type requestLine struct {
	ID     string             `json:"id"`
	Time   training.Timestamp `json:"ts"`
	Tenant string             `json:"tenant"`
	Path   string             `json:"path"` // empty: detected from the body
	Body   json.RawMessage    `json:"body"`
}

var dialects = map[string]openai.Dialect{"/v1/chat/completions": openai.Chat, "/v1/completions": openai.Completions,
	"/v1/messages": openai.Messages, responsesPath: openai.Responses}

// maxRequestLine limits a line of requests in bytes: twice the default of max_body_bytes, for the other fields.
const maxRequestLine = 64 << 20

func (p *featuresPrinter) printLine(line []byte) error {
	var one requestLine
	if err := training.Decode(line, &one); err != nil {
		return err
	}
	switch {
	case one.ID == "":
		return errors.New("id is missing: write the id that the labels have")
	case one.Time.IsZero():
		return training.ErrNoTime
	case len(one.Body) == 0:
		return errors.New("body is missing: write the JSON body of the request")
	}
	dialect, ok := dialects[cmp.Or(one.Path, pathOf(one.Body))]
	switch {
	case !ok && one.Path == "":
		return errors.New("body has no prompt of a chat or text: leave the line out, or write path")
	case !ok:
		return fmt.Errorf("path has no prompt of a chat or text: leave the line out, or write one of %s",
			strings.Join(slices.Sorted(maps.Keys(dialects)), ", "))
	}
	req, err := openai.Parse(dialect, one.Body)
	if err != nil {
		return err
	}
	user, system := prompt.AppendUserText(nil, req, tiers.TextLimit), prompt.AppendSystemText(nil, req, tiers.TextLimit)
	var features tierscore.Features
	p.extractor.Extract(&features, &tierscore.Input{Tenant: one.Tenant, System: system, User: user, Tools: req.Tools,
		Turns: prompt.CountTurns(req)})
	baseline := p.classifier.Classify(&tiers.ClassifierInput{PromptTokens: req.PromptTokens(), MaxTokens: req.MaxTokens,
		User: func() []byte { return user }, System: func() []byte { return system }}).Score
	_, err = fmt.Fprintf(p.out, `{"id":%s,"ts":%q,"baseline":%g,"features":%s}`+"\n", quote(one.ID),
		one.Time.Format(time.RFC3339Nano), baseline, features.AppendJSON(nil))
	return err
}

func quote(s string) []byte {
	text, _ := json.Marshal(s) //nolint:errchkjson // a string
	return text
}
