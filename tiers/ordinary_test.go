package tiers

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// ordinaryPrompts returns prompts that a small model answers well, from the benchmark that
// measures their tiers. Those of the kind "unseen" were written after the word lists were tuned
// on the others, and no expression was changed for them.
func ordinaryPrompts(t *testing.T) (prompts []string) {
	t.Helper()
	text, err := os.ReadFile("../bench/classify/ordinary.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split("\n"+string(text), "\n% ")[1:] {
		_, prompt, _ := strings.Cut(block, "\n")
		prompts = append(prompts, strings.TrimSpace(prompt))
	}
	return prompts
}

// accepted returns all ordinary prompts that a group matches, with the groups and the reason to
// accept that.
func accepted() map[string][2]string {
	const aside = "analysis decides nothing alone"
	return map[string][2]string{
		// These prompts do ask for a quantity.
		"The recipe says 1 cup of sugar. How much is that in grams?":           {"maths", "a conversion of units"},
		"If today is 3 December, how many days are left until Christmas?":      {"maths", "a count of days"},
		"The train leaves at 9:12 and arrives at 11:47. How long is the ride?": {"maths", "a difference of times"},
		"How do I calculate the square metres of my living room?":              {"maths", "a question about a calculation"},
		"The probability of rain is 60 %. Should we move the barbecue?": {"maths",
			"probability asks for maths in most prompts"},
		// These prompts need a structure that small models often miss.
		"List the ingredients of pesto as a table with amounts for 2 and 4 people.": {"extraction", "a table is asked for"},
		"Write a scavenger hunt with 6 clues around the house, each on its own line.": {"extraction",
			"a format is asked for"},
		// Rare uses of words that decide in most prompts.
		"My therapist says I should debug my morning routine. What could she mean?": {"code", "a figure of speech"},
		"What's the equation between love and freedom? A poetic answer please.":     {"maths", "a figure of speech"},

		"What's the difference between baking soda and baking powder?":             {"analysis", aside},
		"Compare butter and margarine for baking cookies.":                         {"analysis", aside},
		`Explain the difference between "ser" and "estar" with two examples each.`: {"analysis", aside},
		"Pros and cons of getting a second dog?":                                   {"analysis", aside},
		"What is the time difference between Berlin and Tokyo?":                    {"analysis", aside},
		"What is the difference between a cold and the flu?":                       {"analysis", aside},
		"Explain why the sky is blue.":                                             {"analysis", aside},
		"Explain how a bill becomes a law, in three sentences.":                    {"analysis", aside},
		"Do a quick SWOT analysis of a small bookshop that wants to sell online.":  {"analysis", aside},
		"What is the difference between a virus and a bacterium?":                  {"analysis", aside},
		"Compare the climate of Seattle with that of Boston in winter.":            {"analysis", aside},
		"Explain how vaccines work to a 10-year-old.":                              {"analysis", aside},
		"What is the difference between stocks and bonds?":                         {"analysis", aside},
		`Analyse the poem "The Road Not Taken" in a few sentences.`:                {"analysis", aside},
		"Is there a correlation between coffee and bad sleep?":                     {"analysis", aside},
	}
}

// TestOrdinaryPromptsMatchNoGroup except for the accepted ones, which match exactly the listed
// groups.
func TestOrdinaryPromptsMatchNoGroup(t *testing.T) {
	prompts := ordinaryPrompts(t)
	if len(prompts) < 400 {
		t.Fatalf("only %d ordinary prompts", len(prompts))
	}
	k := classifier(t, Rules{})
	want := accepted()
	for _, prompt := range prompts {
		got := strings.Join(heard(t, k, prompt), " ")
		if got != want[prompt][0] {
			t.Errorf("%q matches %q, want %q", prompt, got, want[prompt][0])
		}
		delete(want, prompt)
	}
	for prompt := range want {
		t.Errorf("%q is accepted and is no ordinary prompt", prompt)
	}
}

// TestLettersBeforeChoicesMatchNoLogic has lists, and questions with choices, which get the
// tier of the question.
func TestLettersBeforeChoicesMatchNoLogic(t *testing.T) {
	k := classifier(t, Rules{})
	for _, list := range []string{"\nA. one\nB. two\nC. three\nD. four\nAnswer:", "\na) one\nb) two", "\n(a) one\n(b) two",
		"\n1. one\n2. two", "\nA: one\nB: two"} {
		for question, want := range map[string]string{
			"Which one do you like best?":         "",
			"Solve for x: 3x - 7 = 11":            "maths",
			"Which of the following is a mammal?": "",
			"Which of these can be inferred?":     "logic",
		} {
			if got := strings.Join(heard(t, k, question+list), " "); got != want {
				t.Errorf("%q matches %q, want %q", question+list, got, want)
			}
		}
	}
}

// TestOrdinaryPromptsStayAtTheFirstTier bounds the share of prompts that a rule moves up.
func TestOrdinaryPromptsStayAtTheFirstTier(t *testing.T) {
	k := classifier(t, Rules{})
	shares := make([]int, 3)
	prompts := ordinaryPrompts(t)
	for _, prompt := range prompts {
		shares[k.Classify(&ClassifierInput{PromptTokens: int64(len(prompt) / 4), User: says(prompt)}).Tier]++
	}
	if up := len(prompts) - shares[0]; up*100 > 3*len(prompts) || slices.Max(shares) != shares[0] {
		t.Errorf("of %d ordinary prompts the tiers get %v", len(prompts), shares)
	}
}
