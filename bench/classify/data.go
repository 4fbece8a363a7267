package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// The files of the data folder.
const (
	gsm8kFile     = "routellm/gsm8k_responses.csv"
	judgementFile = "routellm/mt_bench_judgements.jsonl"
	questionFile  = "mt-bench/question.jsonl"
)

// The prompts that RouteLLM found in its routers' training data and leaves out
// of its own figures. They are left out here so that the figures can be compared.
var (
	gsm8kSeen   = [...]int{0, 1, 2, 18, 67, 147, 233, 269, 285, 364, 530, 932} // rows after the head
	mtBenchSeen = [...]int{81, 88, 91, 92, 101, 104, 120, 122}                 // question_id
)

// The models whose outcomes the data holds.
const (
	weakModel   = "mistralai/Mixtral-8x7B-Instruct-v0.1"
	strongModel = "gpt-4-1106-preview"
)

// prompt is one labelled prompt.
type prompt struct {
	text     string
	category string  // empty where the set has none
	gain     float64 // the strong model's score less the weak one's
}

// set is labelled prompts of one origin.
type set struct {
	name    string
	left    int // prompts that were left out
	prompts []prompt
}

// load reads the sets. An absent file is fs.ErrNotExist.
func load(folder string) ([]set, error) {
	gsm8k, err := readFile(folder, gsm8kFile, readGSM8K)
	if err != nil {
		return nil, err
	}
	scores, err := readFile(folder, judgementFile, readJudgements)
	if err != nil {
		return nil, err
	}
	questions, err := readFile(folder, questionFile, readLines[question])
	if err != nil {
		return nil, err
	}
	first, second, err := mtBench(questions, scores)
	if err != nil {
		return nil, err
	}
	return []set{gsm8k, first, second}, nil
}

func readFile[T any](folder, name string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return none, fmt.Errorf("opening labelled prompts: %w", err)
	}
	defer f.Close()
	all, err := read(f)
	if err != nil {
		return none, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return all, nil
}

// readGSM8K reads prompts with whether each model was right.
func readGSM8K(in io.Reader) (set, error) {
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return set{}, err
	}
	if len(rows) == 0 {
		return set{}, errors.New("no head")
	}
	text, weak, strong := slices.Index(rows[0], "prompt"), slices.Index(rows[0], weakModel), slices.Index(rows[0], strongModel)
	if min(text, weak, strong) < 0 {
		return set{}, fmt.Errorf("the head lacks prompt, %s or %s", weakModel, strongModel)
	}
	all := set{name: "GSM8K"}
	right := map[string]float64{"True": 1, "False": 0}
	for i, row := range rows[1:] {
		if slices.Contains(gsm8kSeen[:], i) {
			all.left++
			continue
		}
		w, known := right[row[weak]]
		s, also := right[row[strong]]
		if !known || !also {
			return set{}, fmt.Errorf("row %d: an outcome is neither True nor False", i)
		}
		all.prompts = append(all.prompts, prompt{text: row[text], gain: s - w})
	}
	return all, nil
}

// question is a line of questionFile.
type question struct {
	ID       int      `json:"question_id"`
	Category string   `json:"category"`
	Turns    []string `json:"turns"`
}

// judgement is a line of judgementFile.
type judgement struct {
	ID    int     `json:"question_id"`
	Model string  `json:"model"`
	Turn  int     `json:"turn"`
	Score float64 `json:"score"`
}

// asked is whom a judge scored: one model's answer to one turn.
type asked struct {
	id, turn int
	model    string
}

func readJudgements(in io.Reader) (map[asked]float64, error) {
	lines, err := readLines[judgement](in)
	scores := map[asked]float64{}
	for _, j := range lines {
		scores[asked{j.ID, j.Turn, j.Model}] = j.Score
	}
	return scores, err
}

func readLines[T any](in io.Reader) ([]T, error) {
	var all []T
	d := json.NewDecoder(bufio.NewReader(in))
	for {
		var line T
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, line)
	}
}

// mtBench returns the first turns, each with the mean gain of both answers as
// RouteLLM has it, and the second turns with the gain of the second answers.
func mtBench(questions []question, scores map[asked]float64) (first, second set, err error) {
	first.name, second.name = "MT-Bench", "MT-Bench, second turns"
	for _, q := range questions {
		if slices.Contains(mtBenchSeen[:], q.ID) {
			first.left, second.left = first.left+1, second.left+1
			continue
		}
		var gains [2]float64
		for i := range gains {
			strong, known := scores[asked{q.ID, i + 1, strongModel}]
			weak, also := scores[asked{q.ID, i + 1, weakModel}]
			if !known || !also || len(q.Turns) != len(gains) {
				return first, second, fmt.Errorf("question %d lacks a turn or its scores", q.ID)
			}
			gains[i] = strong - weak
		}
		first.prompts = append(first.prompts, prompt{q.Turns[0], q.Category, (gains[0] + gains[1]) / 2})
		second.prompts = append(second.prompts, prompt{q.Turns[1], q.Category, gains[1]})
	}
	return first, second, nil
}
