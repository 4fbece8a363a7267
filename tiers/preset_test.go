package tiers

import (
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

// plainly returns a function that finds the groups that match a text in the simplest way.
func plainly(groups []Keyword) func(text string) []string {
	all := make([][]*regexp.Regexp, len(groups))
	for i, g := range groups {
		for _, m := range g.Match {
			all[i] = append(all[i], regexp.MustCompile("(?i)"+m))
		}
	}
	return func(text string) []string {
		var names []string
		for i, g := range groups {
			if slices.ContainsFunc(all[i], func(m *regexp.Regexp) bool { return m.MatchString(text) }) {
				names = append(names, g.Name)
			}
		}
		return names
	}
}

// asked returns prompts by the group that must match them; other groups may match too.
func asked() map[string][]string {
	return map[string][]string{
		"code": {
			"Write a function that reverses a string.",
			"Here's what I have:\n```\nx = [1, 2\n```\nwhy does it fail?",
			"I get a TypeError: 'NoneType' object is not iterable",
			"def add(a, b):\n  return a - b\n\nwhat is wrong here?",
			"How do I join two tables in SQL and keep unmatched rows?",
			"SELECT name, age FROM users WHERE age > 3 is slow, how do I speed it up?",
			"Please refactor this code so that it is easier to test.",
			"Schreibe eine Python-Funktion, die prüft, ob ein Wort ein Palindrom ist.",
			"Écris un script Python qui renomme tous les fichiers d'un dossier.",
			"Escribe una consulta SQL que devuelva los diez clientes más recientes.",
			"用 Python 写一个快速排序。",
			"What is the time complexity of inserting into a linked list?",
			"a regex for German postcodes please",
			"class Stack:\n    pass\n\nadd push and pop",
			"how do i undo a git rebase",
			"Write a shell script to delete logs older than a week",
			"Can you find the bug in this loop? There must be a bug in my counter.",
			"IMPLEMENT THE FUNCTION BELOW IN C++",
			"from collections import Counter gives me an error",
			"why does std::move not move?",
			"My <div> is not centred",
			"Please rewrite it in Rust.",
			"Which status should a REST API return for a conflict?",
			"import { useState } from 'react' does nothing",
			"self.count = 0 is not kept, why?",
			"Is this C# method thread safe?",
			"Give me a code snippet that does that.",
			"Explain this code",
			"my code prints nothing",
			"Add unit tests for the edge cases.",
			"How do I sort a list in Python?",
			"What is wrong with this Java program?",
		},
		"maths": {
			"Solve for x: 3x - 7 = 11",
			"What is the derivative of x^3 at 2?",
			"A baker sells 12 rolls at $2 each and 5 loaves at $4 each. How much does she earn?",
			"Lina has 3 apples, Tom has four more than Lina. How many apples do they have?",
			"Prove that the sum of two odd numbers is even.",
			"What is the probability of three heads in a row?",
			"Compute 17 * 23.",
			"A train covers 240 km at 80 km/h: how many hours does it take?",
			"Löse die Gleichung x^2 + 4x + 4 = 0",
			"Résous x + 7 = 12",
			"Resuelve x^2 - 5x + 6 = 0",
			"解方程 x^2 + 2x + 1 = 0",
			"Anna is twice as old as Ben was five years ago.",
			"What is the area of a circle with radius 4?",
			"What is the remainder when 127 is divided by 9?",
			"The shirt was 40 and is 25% off. How much is it now?",
			"Ben runs 3 km, Tim runs twice that amount each day. So how far does Tim run in a week?",
			"Ben reads a book. Tim's has twice the number of pages. How long is it?",
			"Invest 8000 in the first year and half of it in the second. What's the total?",
			"There are 12 red and 4 blue marbles. What is the ratio of red to blue?",
			"the determinant of a 2×2 matrix",
			"the circumference of a circle with radius 3",
			"What is the perimeter of the garden?",
			"solve this inequality: 3 < 2x",
			"a question on linear algebra",
			"Solve the following problem.",
			"Prove or disprove: it converges.",
			"I need a formal proof",
			"Show that there are infinitely many prime numbers",
		},
		"logic": {
			"Think about it step by step: who took the keys?",
			"Statement 1: all cats are grey. Statement 2: Tom is grey. Is Tom a cat?",
			"True or false: every square is a rectangle.",
			"When does A hold? If and only if B does.",
			"Which of these words does not belong?",
			"Find the odd one out",
			"which must be true?",
			"Exactly one of them lies.",
			"Ann is the mother of Bob. Who could be the son of Ann, if Cy is the brother of Ann and Dan is the father of Cy?",
			"What is the next number in the sequence?",
			"Ann is taller than Bob, Bob is taller than Cy. Who is shortest?",
			"What can be inferred about the suspect?",
			"Who is lying? Explain your reasoning.",
			"Solve this riddle: what has keys and opens no door?",
			"2, 4, 8, 16: what comes next in the series?",
			"The café sits to the left of the bank, the bank to the right of the church; où est le café?",
			"Does that imply that nobody was at home? It implies that, I think.",
		},
		"analysis": {
			"Analyse the causes of the French Revolution.",
			"Analyze our churn numbers.",
			"Compare electric cars and diesel cars.",
			"What are the trade-offs of remote work?",
			"pros and cons of moving to Lisbon",
			"Evaluate this argument.",
			"What are the differences between a virus and a bacterium?",
			"Assess the risks of this plan.",
			"Vergleich bitte (compare) die beiden Angebote",
			"Fais une analyse de ce poème.",
			"Explain why the sky is blue.",
			"Design a water heating system for a school.",
		},
		"extraction": {
			"Extract all names and dates from the letter below.",
			"Return the result as JSON.",
			"Gib mir das Ergebnis als JSON zurück.",
			"Renvoie les noms au format CSV.",
			"Devuelve los datos en formato YAML.",
			"把结果输出为 JSON 格式。",
			"Classify these reviews as positive or negative.",
			"Identify the subject of each sentence.",
			"Put the prices into a table",
			"List the towns, one town per line.",
			"Based on the passage, where does Mara live?",
			"Find the named entities in: Ada met Bob in Rome.",
			"Given the following records, who paid last?",
			"Do some entity extraction here",
			"a markdown table please",
			"Read the following passage and answer.",
			"Identify any errors.",
		},
	}
}

func TestEachGroupMatchesItsPrompts(t *testing.T) {
	groups := groupsOfPreset("medium", "large")
	speaking := plainly(groups)
	for name, prompts := range asked() {
		for _, prompt := range prompts {
			if got := speaking(prompt); !slices.Contains(got, name) {
				t.Errorf("%q matches %q, not %s", prompt, got, name)
			}
		}
	}
	if len(groups) != len(asked()) {
		t.Errorf("%d groups and prompts for %d", len(groups), len(asked()))
	}
}

func TestEachExpressionIsNeeded(t *testing.T) {
	for _, g := range groupsOfPreset("medium", "large") {
		for _, m := range g.Match {
			if !slices.ContainsFunc(asked()[g.Name], regexp.MustCompile("(?i)"+m).MatchString) {
				t.Errorf("%s: none of its prompts needs %s", g.Name, m)
			}
		}
	}
}

// everyday returns prompts that a small model answers well. No group may match them.
func everyday() []string {
	return []string{
		"Hello!",
		"Write a thank-you note to my aunt for the scarf.",
		"what's the dress code for a garden party?",
		"what is the zip code of Springfield?",
		"My training program is boring, what else could I do?",
		"Develop a training program for my first marathon",
		"give me a reason to smile",
		"Write a short essay on the function of art in society.",
		"Explain the function of the liver to a child.",
		"My yoga class: how do I calm down before it?",
		"Book me a table for two at eight.",
		"Seat us in a corner table, please",
		"Do you have proof of purchase?",
		"Who directed The Matrix?",
		"Help me solve a problem with my sister.",
		"She is an integral part of the team.",
		"What is an import tax?",
		"Write a movie script about a lighthouse keeper.",
		"A recipe for lasagne, step by step",
		"Select a gift from the list for my nephew",
		"What do pandas eat?",
		"Where is Java? I would like to go there on holiday.",
		"one teaspoon of vanilla extract",
		"How much is a ticket to Paris?",
		"How many people live in Oslo?",
		"What is the meaning of life?",
		"Translate \"good morning\" into Japanese.",
		"Tell me a bedtime story about a fox, 3 paragraphs please",
		"It's 24/7 and we open on 2024-05-01, write a sign",
		"Recommend 5 films from the 1990s.",
		"The business premises are closed.",
		"I put it in the front end of my car",
		"Is this a tax deduction?",
		"a jigsaw puzzle with 500 pieces, as a gift",
		"Schreibe ein Gedicht über den Herbst.",
		"Wie viele Einwohner hat Köln?",
		"Welchen Dresscode hat die Oper?",
		"Quel est le code postal de Lyon ?",
		"Raconte-moi une histoire drôle.",
		"¿Cuál es el código postal de Sevilla?",
		"Escribe una carta de amor.",
		"写一首关于春天的诗。",
		"北京今天天气怎么样？",
		"",
		"\xff\xfe\x00",
	}
}

func TestNoGroupMatchesEverydayPrompts(t *testing.T) {
	speaking := plainly(groupsOfPreset("medium", "large"))
	for _, prompt := range everyday() {
		if got := speaking(prompt); len(got) > 0 {
			t.Errorf("%q matches %q", prompt, got)
		}
	}
}

func TestAnalysisAloneIsNotEnough(t *testing.T) {
	for _, g := range groupsOfPreset("medium", "large") {
		if enough := g.Weight >= 1; enough == (g.Name == "analysis") {
			t.Errorf("%s has weight %g", g.Name, g.Weight)
		}
	}
}

func TestEachExpressionOfAPresetIsCheap(t *testing.T) {
	for _, g := range slices.Concat(groupsOfPreset("medium", "large"), presetLesson("large")) {
		for _, m := range g.Match {
			re, err := syntax.Parse("(?i)"+m, syntax.Perl)
			if err != nil {
				t.Errorf("%s: %v", g.Name, err)
				continue
			}
			if needs := required(re).needs(); len(needs) == 0 || shortest(needs) < 3 {
				t.Errorf("%s: %s requires only %q", g.Name, m, needs)
			}
			if unbounded(re) || reach(re) == everywhere {
				t.Errorf("%s: %s has no bounds", g.Name, m)
			}
			if regexp.MustCompile("(?i)" + m).MatchString("") {
				t.Errorf("%s: %s matches nothing at all", g.Name, m)
			}
		}
	}
}

func TestLessonMatchesWordsAnywhere(t *testing.T) {
	groups := presetLesson("large")
	speaking := plainly(groups)
	for prompt, want := range map[string]string{
		"What's the dress code?":                         "code",
		"Debug my program":                               "code",
		"Write a function that sorts a list":             "",
		"decode the barcodes":                            "",
		"compare and contrast":                           "analysis",
		"Analyse this":                                   "",
		"give me a reason to smile":                      "reasoning",
		"step-by-step":                                   "reasoning",
		"a proof of the equation, in code":               "code maths",
		"How many apples are 3 + 4?":                     "",
		"EVALUATE THE PROGRAM. CALCULATE. Step by step.": "code analysis reasoning maths",
	} {
		if got := strings.Join(speaking(prompt), " "); got != want {
			t.Errorf("%q matches %q, want %q", prompt, got, want)
		}
	}
	for _, g := range groups {
		if g.Weight != 1 || g.Tier != "large" || g.Name == "" {
			t.Errorf("%+v does not speak for the last tier with weight 1", g)
		}
	}
}

// heard returns the result of a classifier with one preset for a text.
func heard(t *testing.T, k *Classifier, text string) []string {
	t.Helper()
	_, signals := explained(k, &ClassifierInput{User: func() []byte { return []byte(text) }})
	for _, s := range signals {
		if s.Rule == "keyword" {
			return s.Matched
		}
	}
	t.Fatalf("no keyword among %+v", signals)
	return nil
}

func TestClassifierMatchesLikeItsExpressions(t *testing.T) {
	presets := map[string][]Keyword{"groups": groupsOfPreset("medium", "large"), "lesson": presetLesson("large")}
	// In the middle of a text that matches nothing, a prompt is searched
	// through windows.
	filler := strings.Repeat("We walked along the shore, and nobody said a word. ", 40)
	prompts := everyday()
	for _, some := range asked() {
		prompts = append(prompts, some...)
	}
	for name, groups := range presets {
		speaking := plainly(groups)
		k, err := NewClassifier(Rules{Preset: name}, []string{"small", "large"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if w := k.Warnings(); len(w) > 0 {
			t.Errorf("%s warns: %q", name, w)
		}
		for _, prompt := range prompts {
			want := speaking(prompt)
			for _, text := range []string{prompt, filler + prompt + " " + filler, strings.ToUpper(prompt)} {
				if got := heard(t, k, text); !slices.Equal(got, want) {
					t.Errorf("%s: %q matches %q, want %q", name, text, got, want)
				}
			}
		}
	}
}

func TestOneGroupRequestsTheSecondTierAndCodeTheLast(t *testing.T) {
	k, err := NewClassifier(Rules{Preset: "groups"}, []string{"small", "medium", "large"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for prompt, want := range map[string]string{
		"Write a function that reverses a string.":            "2 keyword:code",
		"Solve for x: 3x - 7 = 11":                            "1 keyword:maths",
		"True or false: every square is a rectangle.":         "1 keyword:logic",
		"Extract all names and dates from the letter below.":  "1 keyword:extraction",
		"Analyse the causes of the French Revolution.":        "0 default",
		"Analyse the causes and return the result as JSON.":   "1 keyword:extraction",
		"Write a thank-you note to my aunt for the scarf.":    "0 default",
		"What's the dress code, and is my program any good?":  "0 default",
		"Compare bubble sort with quicksort: time complexity": "2 keyword:code",
	} {
		c := k.Classify(&ClassifierInput{User: func() []byte { return []byte(prompt) }})
		if got := fmt.Sprint(c.Tier, " ", c.Rule); got != want {
			t.Errorf("%q: %s, want %s", prompt, got, want)
		}
	}
}

// TestCompiledPresetsFitEachConfiguration: a preset is compiled once, beside any groups and for any tiers.
func TestCompiledPresetsFitEachConfiguration(t *testing.T) {
	own := []Keyword{{Tier: "large", Name: "law", Match: []string{"court order"}}}
	for _, preset := range []string{"groups", "lesson", "none"} {
		for _, names := range [][]string{{"small", "medium", "large"}, {"small", "large"}, {"large"}} {
			for _, rules := range []Rules{{Preset: preset}, {Preset: preset, Keywords: own}} {
				k, err := NewClassifier(rules, names, nil)
				if err != nil {
					t.Fatal(err)
				}
				m := k.matcher
				if !reflect.DeepEqual(m.automaton, newAutomaton(m.expressions)) {
					t.Errorf("%s with %d own groups: the automaton has other literals", preset, len(rules.Keywords))
				}
				for i, e := range m.expressions {
					if m.groups[e.group].preset == (i < len(rules.Keywords)) || e.in != m.groups[e.group].in {
						t.Errorf("%s: expression %d belongs to group %q", preset, i, m.groups[e.group].name)
					}
				}
			}
		}
	}
}
