package tiers

// presetGroups returns the preset groups: what to look for in a request that a
// small model tends to get wrong and a large one right. Each expression has a
// literal of three bytes or more that must occur where it matches, and none is
// unbounded, so that a turn is scanned once and an expression runs only around
// its literal. Single words that everyday prompts share with code or maths
// (class, program, script, table, solve, proof, python) count only beside a word
// that settles the meaning, and a single relation or percentage only beside a
// question about a quantity. docs/tiers.md has what the groups are worth. The strong
// model's lead is largest on code, which therefore asks for the last tier and the
// other groups for a lower one.
func presetGroups(lower, last string) []Keyword {
	return []Keyword{
		{Tier: last, Name: "code", Weight: 2, Match: codeExpressions()},
		{Tier: lower, Name: "maths", Weight: 1, Match: mathsExpressions()},
		{Tier: lower, Name: "logic", Weight: 1, Match: logicExpressions()},
		// Essays compare and assess as often as factual questions do, and small models
		// write good essays: this group needs another one beside it.
		{Tier: lower, Name: "analysis", Weight: 0.5, Match: analysisExpressions()},
		{Tier: lower, Name: "extraction", Weight: 1, Match: extractionExpressions()},
	}
}

// presetLesson returns the preset lesson: four groups of single words, as short
// guides to tiered serving give them, any of which asks for the last tier.
func presetLesson(last string) []Keyword {
	words := func(name, match string) Keyword {
		return Keyword{Tier: last, Name: name, Weight: 1, Match: []string{match}}
	}
	return []Keyword{
		words("code", `\bcode\b|\bprogram\b|\bimplementation\b|\bdebug\b`),
		words("analysis", `\banalyze\b|\banalysis\b|\bevaluate\b|\bcompare\b`),
		words("reasoning", `\bstep.by.step\b|\bchain.of.thought\b|\breason\b`),
		words("maths", `\bmath\b|\bcalculate\b|\bequation\b|\bproof\b`),
	}
}

func codeExpressions() []string {
	return []string{
		// Code itself.
		"```",
		`\b(?:def|func|function|fn) \w{1,40}\(`,
		`\bclass \w{1,40}(?:\(\w{0,40}\))?:\n[ \t]|\bclass \w{1,40} ?\{`,
		`\bfrom [\w.]{1,40} import (?:\*|\(|\w{1,40}(?:\n| as )|(?-i:[A-Z]))`,
		`\bimport [\w{}*, ]{1,40} from ["']|#include ?[<"]`,
		`\bpublic static (?:void|int|final|class)\b|\bconsole\.log\(|\bsystem\.out\.|\bstd::|\b__init__\b`,
		`\bself\.\w{1,40}(?: ?[=(\[+]|\.\w)`,
		`\bselect (?:distinct )?[\w.*()]{1,40}(?:, ?[\w.*()]{1,40}){0,9} ` +
			`from \w{1,40}(?:;| where | join | group by | order by | limit )`,
		`<(?:html|body|div|span|script|button|input)[ >]`,
		`\b(?:typeerror|valueerror|keyerror|nullpointerexception|segfault|segmentation fault|stack ?trace|traceback` +
			`|syntax error|compile error|compiler error)\b`,
		// Languages and tools whose name alone is unambiguous.
		`\b(?:javascript|typescript|golang|kotlin|haskell|fortran|cobol|matlab|html|css|sql|mysql|postgres(?:ql)?` +
			`|regex|regexp|regular expressions?|numpy|dataframes?|pytorch|node\.js|kubernetes|dockerfile|makefile` +
			`|terraform)\b`,
		// A python is a snake too, C# a key, and the others are words.
		`\b(?:in|en|em|auf|mit|via|une?|using|use|with|learn|learning|run|write|scripts?|fonction|programa) python\b`,
		`\bpython(?: ?[^\x00-\x7f]|[- ]?(?:\d|code|scripts?|programm?s?|functions?|funktion|class|lists?|dict|librar` +
			`|packages?|modules?|snippet|developer|app|api|errors?|exception|project|version|tutorial|course` +
			`|interpreter|notebook|loop|strings?|variable|methods?|objects?))`,
		`\bc\+\+|\bin c#[.?,:;)\n]`,
		`\bc# (?:code|program|script|class|method|function|developer|project|app|list|string|array)`,
		`\b(?:bash|shell|powershell|perl|ruby|rust|java|swift|scala|lua|php|go|c) ` +
			`(?:code|programs?|scripts?|functions?|snippet|compiler)\b`,
		`\b(?:written|rewrite (?:it|this)|write (?:it|this)|implement(?:ed)? (?:it|this)|code) ` +
			`in (?:go|rust|java|ruby|swift|scala|perl|php|lua|c)\b`,
		`\bgit (?:commit|rebase|merge|push|pull|branch|checkout|clone)\b|\b(?:npm|pip) install\b`,
		// What is asked of it.
		`\b(?:write|implement|fix|refactor|optimi[sz]e|complete|debug) (?:me )?(?:an?|the|this|my) (?:[\w-]{1,15} ){0,2}` +
			`(?:function|subroutine|algorithm|parser|unit tests?)\b`,
		`\bfunction (?:to|that|which|for) (?:calculat|check|comput|convert|count|delet|download|fetch|find|implement` +
			`|merg|multipl|pars|print|read|renam|replac|return|revers|search|sort|sum|validat)(?:e?s|ing|e)?\b`,
		`\b(?:program|script|code) (?:to|that|which|for) (?:calculat|comput|convert|count|delet|download|fetch|implement` +
			`|merg|multipl|pars|print|renam|search|sort|validat)(?:e?s|ing|e)?\b`,
		`\b(?:debug|debugging|refactor|refactoring|recursion|recursive|recursively|leetcode|codebase|pseudocode` +
			`|source code)\b`,
		`\bbugs? in (?:the|this|my) (?:[\w-]{1,15} )?(?:code|program|script|function|loop|app|software|class|method` +
			`|query|parser|counter|implementation|library|line)\b`,
		`\b(?:following|sample|example|write|writing) code\b|\bcode (?:snippets?|reviews?)\b|\blines? of code\b`,
		`\b(?:explain|fix|improve|review|understand|run|test|optimi[sz]e|document|comment) (?:this|my|your) code\b`,
		`\b(?:this|my) code (?:returns|prints|throws|compiles|crashes|runs)\b`,
		`\b(?:time|space) complexity\b|\bbinary (?:search|trees?)\b|\blinked lists?\b|\bdata structures?\b` +
			`|\bhash ?(?:map|table)s?\b|\b(?:sorted|integer|given|two) arrays?\b`,
		`\b(?:rest|graphql|http|json) apis?\b|\bapi (?:endpoint|call|key|client)s?\b|\bpull request\b`,
		`\bunit[- ]tests\b|\bunit[- ]test (?:for|of) (?:this|my) (?:function|class|method|code)\b`,
	}
}

func mathsExpressions() []string {
	return []string{
		// The subject's own words.
		`\b(?:equations?|polynomials?|quadratic|theorem|lemma|eigenvalues?|eigenvectors?|integrals|logarithms?` +
			`|hypotenuse|permutations|combinatorics|factorials?|prime (?:numbers?|factors?)|greatest common` +
			`|least common multiple|trigonometry|standard deviation|square root|cube root|numerators?|integers?` +
			`|vertices|isosceles|quadrilateral)\b`,
		`\b(?:derivative|integral) of (?:the function|[xyzfgh]\b|\d|sin|cos|tan|log|ln)`,
		`\bdeterminant of (?:the|this|an?) (?:[\w×-]{1,12} )?matrix\b`,
		`\bcircumference of (?:a|the|each) (?:circle|wheel)\b`,
		`\b(?:linear|quadratic|triangle|solve this|solve the|following) inequality\b`,
		`\b(?:linear|abstract|boolean) algebra\b|\b(?:differential|integral|multivariable|vector) calculus\b`,
		`\bprobabilit(?:y|ies)\b`,
		`\bsolve for [b-hj-z]\b|\bsolve (?:the|this) (?:following )?(?:equation|system of|inequality|maths? problem)`,
		`\bsolve the following problem\b|\bsolve it algebraically\b`,
		`\bprove (?:or disprove|the following|by (?:induction|contradiction))\b`,
		`\b(?:prove|proof|show) that (?:for (?:all|any|every|each)|if |every |each |any |all |there (?:is|are|exists?) ` +
			`|the (?:sum|product|number|set|function|square|sequence|series|limit)\b|\d|[b-hj-z]\b)`,
		`\bproof by (?:induction|contradiction|cases)\b|\b(?:formal|mathematical|geometric|inductive) proofs?\b`,
		`\b(?:calculate|compute)\b`,
		`\b(?:area|volume) of (?:an?|the|this|each) (?:[\w-]{1,12} )?(?:circle|square|rectangle|triangle|polygon|sphere` +
			`|cube|cylinder|cone|trapezoid|parallelogram|region|figure)\b`,
		`\b(?:perimeter|radius|diameter) of (?:an?|the|this|each) `,
		`\b(?:divided|multiplied) by (?:\d|two|three|four|five|six|seven|eight|nine|ten|[xyzn]\b)`,
		`\bremainder (?:when|is \d)|\bsum of (?:two|its digits|\d|the (?:first|digits|squares|angles|numbers|integers))`,
		`\bf\(x\)|\bsqrt\(|\b[xyzn]\^[2-9n]|\b[xyz] [-+=<>*] [\dxyz(]|\d[xyz]? [+*=] [\dxyz(]|\d × \d{1,9} ?=`,
		// Word problems: a quantity or a relation of quantities before one that is asked
		// for. A relation or a percentage alone is everyday talk.
		`\d[^?]{0,100}\bhow (?:many|much|long|old|far|fast)\b`,
		`\bwhat(?: is| was| will be| would be|'s|’s) the (?:total|combined|sum)\b`,
		`\d[^?]{0,100}\bwhat(?: is| was| will be| would be|'s|’s) the (?:product of|ratio|percentage|remainder)\b`,
		`\b(?:twice|half|double|triple|thrice|times) as (?:many|old) as\b`,
		`\b(?:twice|half|double|triple|thrice|times) (?:as (?:many|much|long|fast|big|tall|far|large)` +
			`|that (?:many|much|amount|number)|the (?:number|amount|size|price|cost|age|length|speed|distance|weight))\b` +
			`[^?]{0,100}\bhow\b`,
		`\d% (?:of|more|less|off|longer|discount|increase|higher|lower|faster|interest|profit)\b[^?]{0,100}\bhow\b`,
	}
}

func logicExpressions() []string {
	const older = `(?:taller|older|shorter|younger|heavier|faster) than\b`
	const family = `the (?:father|mother|son|daughter|brother|sister) of\b`
	return []string{
		`\b(?:think|reason|work through|solve|answer|prove|derive) (?:\w{1,12} ){0,3}step[ -]by[ -]step\b`,
		`\b(?:explain|show) (?:me )?(?:your|all your) (?:reasoning|working|steps|work)\b|\breasoning steps?\b` +
			`|\bchain[ -]of[ -]thought\b`,
		`\bstatement (?:2|3|ii|iii|b)\b ?[:|.)]|\bstatements (?:1|i) and (?:2|ii)\b|\b(?:following|two|three) statements\b`,
		`\btrue or false ?[:?.]|\btrue, false\b|\b(?:decide|determine|state|whether) [^\n?]{0,60}\btrue or false\b`,
		`\bmust be (?:true|false)\b|\b(?:necessarily|logically) (?:true|false|follows?|equivalent|valid)\b`,
		`\bif and only if\b|\bnecessary and sufficient\b|\bimplies that\b|\bdeduced? (?:that|from|who|which|what)\b` +
			`|\binfer(?:red)?\b|\bsyllogism\b|\bcounter-?example\b|\bby contradiction\b`,
		`\b(?:logic|logical|reasoning) (?:puzzle|problem|question|riddle|test)s?\b` +
			`|\b(?:solve|answer) (?:this|the) (?:riddle|puzzle)\b|\bbrain ?teaser\b`,
		`\bwhich [^\n?]{0,40}\bdoes(?: not|n't|n’t) belong\b`,
		`\b(?:comes next|next (?:number|term|letter)) in (?:the|this) (?:sequence|series|pattern|list)\b`,
		`\bodd one out ?[:?]|\b(?:which|find|spot) [^\n?]{0,40}\bodd one out\b`,
		// One such relation is everyday talk; two make a puzzle.
		`\bto the (?:left|right) of\b[^?]{0,200}\bto the (?:left|right) of\b`,
		`\bexactly (?:one|two|three) of (?:the|them|these|whom|which)\b`,
		`\bis ` + older + `[^?]{0,150}\b(?:is|be) ` + older,
		`\bis ` + family + `[^?]{0,150}\b(?:is|be) ` + family,
	}
}

func analysisExpressions() []string {
	return []string{
		`\banaly[sz](?:e|es|ing|is)\b|\bevaluat(?:e|es|ing|ion)\b|\bassess(?:es|ing|ment)?\b|\bcritically\b|\bcritique\b`,
		`\bcompar(?:e|es|ing|ison)\b|\bcontrast(?:s|ing)?\b|\btrade-?offs?\b|\bpros and cons\b` +
			`|\bstrengths and weaknesses\b|\badvantages and disadvantages\b`,
		`\bdifferences? between\b|\bcorrelation\b|\brelate(?:s|d)? to\b|\bimplications? (?:of|for)\b|\broot causes?\b` +
			`|\bjustify\b|\bexplain (?:why|how)\b|\bin[- ]depth\b`,
		`\bhypothes[ie]s\b|\bprinciples of\b|\bcase stud(?:y|ies)\b` +
			`|\bdesign (?:a|an|the) [^\n]{0,40}\b(?:system|architecture|experiment|workflow)\b`,
	}
}

func extractionExpressions() []string {
	return []string{
		`\bextract (?:[\w-]{1,12},? ){0,3}(?:names?|dates?|numbers?|information|data|entit(?:y|ies)|keywords?|phrases?` +
			`|facts|e-?mails?|addresses|amounts?|prices?|fields?|values?|topics?|terms|events?)\b`,
		`\bextracting (?:the|all|data|information)\b|\b(?:data|information|entity) extraction\b`,
		`\b(?:json|jsonl|csv|yaml|xml|tsv|toml)\b`,
		`\b(?:put|list|format|present|arrange|summari[sz]e|organi[sz]e|return|output|give me) [^\n.?]{0,60}` +
			`\b(?:as|in|into) an? (?:\w{1,12} )?table\b`,
		`\b(?:markdown|html) table\b|\btable with (?:the )?columns\b`,
		`\bclassify (?:the|this|these|each|it|them|as|whether)\b|\bcategori[sz]e\b|\bthese categories\b` +
			`|\bone of (?:the|these) (?:following )?(?:categories|labels)\b|\bsentiment (?:of|analysis|as)\b`,
		`\bidentify (?:all|any|each|every)\b|\bnamed entit(?:y|ies)\b|\bkey[- ]value pairs?\b`,
		`\bidentify (?:the|which|whether) [^\n.?]{0,40}\b(?:of|in|from) (?:each|every|these` +
			`|(?:the|this) (?:following|text|sentence|passage|paragraph|list|document|article))\b`,
		`\b(?:one|each) [^\n]{0,30}\b(?:per|separate|every|own) line\b|\bin the following format\b|\boutput format\b`,
		`\b(?:following|given|these) (?:data|dataset|records|table|logs?|invoice|receipt|passages?)\b` +
			`|\bcount how many times\b`,
		`\b(?:based on|according to|using) (?:the|this) (?:\w{1,10} )?(?:passage|paragraph|table|transcript)\b`,
		`\bread (?:the|this) (?:below |following )?(?:passage|paragraph|text) (?:and|below|carefully|then)\b`,
	}
}
