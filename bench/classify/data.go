package main

import (
	"bufio"
	_ "embed" // the ordinary prompts
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of the data folder.
const (
	gsm8kFile     = "routellm/gsm8k_responses.csv"
	examFile      = "routellm/exam_responses.csv"
	judgementFile = "routellm/mt_bench_judgements.jsonl"
	questionFile  = "mt-bench/question.jsonl"
)

// Names of sets.
const (
	gsm8kName      = "GSM8K"
	firstTurnsName = "MT-Bench, first turns"
	examName       = "exam questions with choices"
)

// ordinaryText is prompts that a small model answers well, each after a line of "% "
// and its kind.
//
//go:embed ordinary.txt
var ordinaryText string

// The prompts that RouteLLM found in its routers' training data and leaves out
// of its own figures. They are left out here so that the figures can be compared.
var (
	gsm8kSeen   = [...]int{0, 1, 2, 18, 67, 147, 233, 269, 285, 364, 530, 932} // rows after the head
	mtBenchSeen = [...]int{81, 88, 91, 92, 101, 104, 120, 122}                 // question_id
)

// The models with outcomes in the data.
const (
	weakModel   = "mistralai/Mixtral-8x7B-Instruct-v0.1"
	strongModel = "gpt-4-1106-preview"
)

// promptRow is one prompt, with labels if its set has them.
type promptRow struct {
	text     string
	category string  // empty where the set has none
	gain     float64 // the strong model's score less the weak one's
	right    [2]bool // whether the weak and the strong model answered well
	before   string  // the user's turn before it in a chat; empty: it is a chat's first
}

// set is prompts of one origin.
type set struct {
	name    string
	seen    string  // which part of it the word lists were written with; empty: none
	left    int     // prompts that were left out
	points  float64 // of a score that is shown: 100 for right or wrong, 10 for marks out of ten; 0: the set has no labels
	prompts []promptRow
}

// load reads the labelled sets. An absent file is fs.ErrNotExist.
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
	exam, err := readFile(folder, examFile, readExam)
	if err != nil {
		return nil, err
	}
	return []set{gsm8k, first, second, inChats(first, second), exam, withoutChoices(exam)}, nil
}

// ordinary returns the ordinary prompts, those with which the word lists were mended
// and the others.
func ordinary() []set {
	mended := set{name: "ordinary prompts", seen: "in-sample"}
	unseen := set{name: "ordinary prompts, written later"}
	for _, block := range strings.Split("\n"+ordinaryText, "\n% ")[1:] {
		kind, text, _ := strings.Cut(block, "\n")
		to := &mended
		if kind == "unseen" {
			to = &unseen
		}
		to.prompts = append(to.prompts, promptRow{text: strings.TrimSpace(text), category: kind})
	}
	return []set{mended, unseen}
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
	text, weak, strong := slices.Index(rows[0], "prompt"), slices.Index(rows[0], weakModel),
		slices.Index(rows[0], strongModel)
	if min(text, weak, strong) < 0 {
		return set{}, fmt.Errorf("the head lacks prompt, %s or %s", weakModel, strongModel)
	}
	all := set{name: gsm8kName, seen: "partly", points: 100}
	for i, row := range rows[1:] {
		if slices.Contains(gsm8kSeen[:], i) {
			all.left++
			continue
		}
		right, err := rightOf(row[weak], row[strong])
		if err != nil {
			return set{}, fmt.Errorf("row %d: %w", i, err)
		}
		all.prompts = append(all.prompts, promptRow{text: row[text], gain: gainOf(right), right: right})
	}
	return all, nil
}

// rightOf returns whether the weak and the strong model were right.
func rightOf(weak, strong string) (right [2]bool, err error) {
	for i, text := range []string{weak, strong} {
		if right[i] = text == "True"; !right[i] && text != "False" {
			return right, errors.New("an outcome is neither True nor False")
		}
	}
	return right, nil
}

// gainOf returns the gain of a prompt from whether each model was right.
func gainOf(right [2]bool) (gain float64) {
	for i, sign := range []float64{-1, 1} {
		if right[i] {
			gain += sign
		}
	}
	return gain
}

// readExam reads lettered exam questions with whether each model was right.
func readExam(in io.Reader) (set, error) {
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return set{}, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], []string{"subject", "prompt", "weak_right", "strong_right"}) {
		return set{}, errors.New("the head is not subject, prompt, weak_right, strong_right")
	}
	all := set{name: examName, points: 100}
	for i, row := range rows[1:] {
		right, err := rightOf(row[2], row[3])
		if err != nil {
			return set{}, fmt.Errorf("row %d: %w", i, err)
		}
		all.prompts = append(all.prompts, promptRow{text: row[1], category: row[0], gain: gainOf(right), right: right})
	}
	return all, nil
}

// withoutChoices returns exam questions without their lettered choices. The labels are
// those of the answers with choices.
func withoutChoices(exam set) set {
	all := exam
	all.name, all.prompts = "exam questions without choices", slices.Clone(exam.prompts)
	for i, p := range all.prompts {
		all.prompts[i].text, _, _ = strings.Cut(p.text, "\nA. ")
	}
	return all
}

// inChats returns second turns that follow their first ones.
func inChats(first, second set) set {
	all := second
	all.name, all.prompts = second.name+" of a chat", slices.Clone(second.prompts)
	for i := range all.prompts {
		all.prompts[i].before = first.prompts[i].text
	}
	return all
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

// asked is what a judge scored: one model's answer to one turn.
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

// goodScore is the least score of ten with which an answer counts as right.
const goodScore = 8

// mtBench returns the first turns, each with the mean gain of both answers as
// RouteLLM has it, and the second turns with the gain of the second answers.
func mtBench(questions []question, scores map[asked]float64) (first, second set, err error) {
	first = set{name: firstTurnsName, seen: "in-sample", points: 10}
	second = set{name: "MT-Bench, second turns", points: 10}
	for _, q := range questions {
		if slices.Contains(mtBenchSeen[:], q.ID) {
			first.left, second.left = first.left+1, second.left+1
			continue
		}
		var gains [2]float64
		var right [2][2]bool // by turn
		for i := range gains {
			strong, known := scores[asked{q.ID, i + 1, strongModel}]
			weak, also := scores[asked{q.ID, i + 1, weakModel}]
			if !known || !also || len(q.Turns) != len(gains) {
				return first, second, fmt.Errorf("question %d lacks a turn or its scores", q.ID)
			}
			gains[i] = strong - weak
			right[i] = [2]bool{weak >= goodScore, strong >= goodScore}
		}
		first.prompts = append(first.prompts,
			promptRow{text: q.Turns[0], category: q.Category, gain: (gains[0] + gains[1]) / 2, right: right[0]})
		second.prompts = append(second.prompts,
			promptRow{text: q.Turns[1], category: q.Category, gain: gains[1], right: right[1]})
	}
	return first, second, nil
}
