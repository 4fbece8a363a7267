package main

import "strings"

// demoSystemPrompts are the beginnings of the chats. They are long enough for several cache blocks of
// the engines, as those of real applications are.
func demoSystemPrompts() []string {
	manner := strings.Repeat(" Answer in a friendly tone and in short sentences. Ask for a number if it is missing. "+
		"Never promise a date that the shop has not confirmed. Refer to the help page for anything else.", 4)
	return []string{
		"You help the customers of a furniture shop." + manner,
		"You help the guests of a small hotel by the sea." + manner,
		"You help the readers of a city library." + manner,
	}
}

// demoQuestions are everyday questions, which stay at the small tier.
var demoQuestions = []string{
	"Hello, when do you open tomorrow?",
	"Can I change my booking to next weekend?",
	"Which bus goes to the old harbour?",
	"Please write a short thank-you note to my neighbour.",
	"What is a good present for a friend who likes gardening?",
	"My parcel has not arrived yet. What should I do?",
	"Is breakfast included, and until when is it served?",
	"Recommend three novels for a long train journey.",
	"How do I get red wine out of a white tablecloth?",
	"Translate into French: the room is quiet and bright.",
	"The chair wobbles. Could you send me another screw?",
	"What can I cook with potatoes, leeks and cream?",
}

// demoCodeQuestions match the keyword group of code, which selects the large tier.
var demoCodeQuestions = []string{
	"Write a Python function that sorts a list of orders by date.",
	"Refactor this code so that it reads the file only once.",
	"Write a SQL query that counts the orders of each customer.",
	"Why does my JavaScript program print undefined?",
}

// demoMathsQuestions match the keyword group of mathematics, which selects the medium tier.
var demoMathsQuestions = []string{
	"Solve the equation 3x + 7 = 25.",
	"What is the square root of 1764?",
	"Find the prime factors of 8633.",
}

var demoReaders = []string{"the head of the office", "a new colleague", "the weekly meeting", "the customers"}

// demoSubjects, demoVerbs and demoTimes are the parts of sentences of documents.
var (
	demoSubjects = []string{"The north office", "A customer from the coast", "The new warehouse", "Our driver",
		"The second shop", "A group of visitors", "The evening team", "The supplier of paper", "The garden department",
		"One of the guests"}
	demoVerbs = []string{"ordered twelve chairs", "returned a broken lamp", "waited for the delivery", "paid the invoice",
		"moved to another building", "praised the friendly service", "closed for the holidays", "sent a long letter",
		"received the wrong parcel", "hired two people"}
	demoTimes = []string{"in March", "after the storm", "on Monday morning", "before the fair", "at the end of the week",
		"without any delay", "for the third time", "in the late summer", "during the repairs", "a day too early"}
)
