package tiers

// presetGroups returns the preset groups: what to look for in a request that a
// small model tends to get wrong and a large one right. Each expression has a
// literal of three bytes or more that must occur where it matches, and none is
// unbounded, so that a turn is scanned once and an expression runs only around
// its literal. Single words that everyday prompts share with code or maths
// (class, program, script, table, solve, proof, matrix) stand only beside a word
// that settles the meaning. docs/tiers.md has what the groups are worth.
func presetGroups() []Keyword {
	return []Keyword{
		{Name: "code", Weight: 1, Match: codeExpressions()},
		{Name: "maths", Weight: 1, Match: mathsExpressions()},
		{Name: "logic", Weight: 1, Match: logicExpressions()},
		// To compare and to assess is asked of essays as often as of facts, and
		// essays are what small models do well: it needs a second group beside it.
		{Name: "analysis", Weight: 0.5, Match: analysisExpressions()},
		{Name: "extraction", Weight: 1, Match: extractionExpressions()},
	}
}

// presetLesson returns the preset lesson: four groups of single words, as short
// guides to tiered serving give them, any of which asks for the last tier.
func presetLesson() []Keyword {
	return []Keyword{
		{Name: "code", Weight: 1, Match: []string{`\bcode\b|\bprogram\b|\bimplementation\b|\bdebug\b`}},
		{Name: "analysis", Weight: 1, Match: []string{`\banalyze\b|\banalysis\b|\bevaluate\b|\bcompare\b`}},
		{Name: "reasoning", Weight: 1, Match: []string{`\bstep.by.step\b|\bchain.of.thought\b|\breason\b`}},
		{Name: "maths", Weight: 1, Match: []string{`\bmath\b|\bcalculate\b|\bequation\b|\bproof\b`}},
	}
}

func codeExpressions() []string {
	return []string{
		// Code itself.
		"```",
		`\b(?:def|func|function|fn) \w{1,40}\(`,
		`\bclass \w{1,40}(?:\(\w{0,40}\))?:\n|\bclass \w{1,40} ?\{`,
		`\bfrom [\w.]{1,40} import |\bimport [\w{}, ]{1,40} from |#include ?[<"]`,
		`\bpublic static |\bconsole\.log\(|\bsystem\.out\.|\bstd::|\bself\.\w|\b__init__\b`,
		`\bselect [\w.*, ()]{1,60} from \w{1,40}(?:;| where | join | group by | order by | limit )`,
		`<(?:html|body|div|span|script|button|input)[ >]`,
		`\b(?:typeerror|valueerror|keyerror|nullpointerexception|segfault|segmentation fault|stack ?trace|traceback|syntax error|compile error|compiler error)\b`,
		// Languages and tools whose name alone says it.
		`\b(?:python|javascript|typescript|golang|kotlin|haskell|fortran|cobol|matlab|html|css|sql|mysql|postgres(?:ql)?|regex|regexp|regular expressions?|numpy|dataframes?|pytorch|node\.js|kubernetes|dockerfile|makefile|terraform)\b`,
		`\bc\+\+| c# `,
		`\b(?:bash|shell|powershell|perl|ruby|rust|java|swift|scala|lua|php|go|c) (?:code|programs?|scripts?|functions?|snippet|compiler)\b`,
		`\b(?:written|rewrite (?:it|this)|write (?:it|this)|implement(?:ed)? (?:it|this)|code) in (?:go|rust|java|ruby|swift|scala|perl|php|lua|c)\b`,
		`\bgit (?:commit|rebase|merge|push|pull|branch|checkout|clone)\b|\b(?:npm|pip) install\b`,
		// What is asked of it.
		`\b(?:write|implement|fix|refactor|optimi[sz]e|complete|debug) (?:me )?(?:an?|the|this|my) (?:[\w-]{1,15} ){0,2}(?:function|subroutine|algorithm|parser|unit tests?)\b`,
		`\b(?:function|program|script|code) (?:to|that|which|for) (?:calculat|check|comput|convert|count|delet|download|fetch|find|implement|merg|multipl|pars|print|read|renam|replac|return|revers|search|sort|sum|validat)(?:e?s|ing|e)?\b`,
		`\b(?:debug|debugging|refactor|refactoring|recursion|recursive|recursively|leetcode|codebase|pseudocode|source code)\b`,
		`\bbugs? in (?:the|this|my) \w|\b(?:this|my|following|sample|write|writing) code\b|\bcode (?:snippet|review|above|below)\b|\blines? of code\b`,
		`\b(?:time|space) complexity\b|\bbinary (?:search|trees?)\b|\blinked lists?\b|\bdata structures?\b|\bhash ?(?:map|table)s?\b|\b(?:sorted|integer|given|two) arrays?\b`,
		`\b(?:rest|graphql|http|json) apis?\b|\bapi (?:endpoint|call|key|client)s?\b|\bunit tests?\b|\bpull request\b`,
	}
}

func mathsExpressions() []string {
	return []string{
		// The subject's own words.
		`\b(?:equations?|inequality|derivative of|integral of|integrals|polynomials?|quadratic|theorem|lemma|eigenvalues?|eigenvectors?|determinant of|logarithms?|hypotenuse|permutations|combinatorics|factorials?|prime (?:numbers?|factors?)|greatest common|least common multiple|algebra|calculus|trigonometry|standard deviation|square root|cube root|numerator|denominator|circumference|integers?|vertices|isosceles|quadrilateral)\b`,
		`\bprobabilit(?:y|ies)\b`,
		`\bsolve (?:for|the (?:following )?(?:equation|system|problem|inequality)|this (?:equation|system|problem)|it algebraically)\b`,
		`\bprove (?:that|the|by|it|this|or disprove)\b|\bproof (?:that|by) |\bproofs\b`,
		`\b(?:calculate|compute)\b`,
		`\b(?:area|perimeter|volume|radius|diameter) of (?:a|an|the|this|each) \b`,
		`\bdivided by\b|\bmultiplied by\b|\bremainder (?:when|of|is)\b|\bsum of (?:the|all|two|its|\d)`,
		`\bf\(x\)|\bsqrt\(|\b[xyzn]\^[2-9n]|\b[xyz] [-+=<>*] [\dxyz(]|\d[xyz]? [+*×=] [\dxyz(]`,
		// Word problems: a quantity asked for, and quantities given in relation.
		`\d[^?]{0,100}\bhow (?:many|much)\b`,
		`\bwhat (?:is|was|will be|would be) the (?:total|combined|sum|product of|probability|ratio|percentage|remainder)\b|\bwhat(?:'s|’s) the (?:total|sum|probability)\b`,
		`\b(?:twice|half|double|triple|thrice|times) (?:as (?:many|much|old|long|fast|big|tall|far|large)|that (?:many|much|amount|number)|the (?:number|amount|size|price|cost|age|length|speed|distance|weight))\b`,
		`\d ?percent\b|\d% (?:of|more|less|off|longer|discount|increase|higher|lower|faster|interest|profit|chance)\b`,
		`\b(?:\d{1,6}|two|three|four|five|six|seven|eight|nine|ten) (?:more|fewer|less|times) (?:\w{1,20} ){0,3}(?:than|as)\b`,
	}
}

func logicExpressions() []string {
	return []string{
		`\b(?:think|reason|work|solve|explain|answer|prove|derive) (?:\w{1,12} ){0,3}step[ -]by[ -]step\b`,
		`\b(?:explain|show) (?:me )?(?:your|all your) (?:reasoning|working|steps|work)\b|\breasoning steps?\b|\bchain[ -]of[ -]thought\b`,
		`\bstatements? (?:\d|[ivx]{1,3}\b|[a-d]\b)|\b(?:first|second|third|two|three|these|following) statements\b`,
		`\btrue or false\b|\btrue, false\b|\bmust be (?:true|false)\b|\b(?:necessarily|logically) (?:true|false|follows?|equivalent|valid)\b`,
		`\bif and only if\b|\bnecessary and sufficient\b|\bimpl(?:y|ies) that\b|\bdeduced? (?:that|from|who|which|what)\b|\binfer(?:red)?\b|\bsyllogism\b|\bcounter-?example\b|\bby contradiction\b`,
		`\b(?:logic|logical|reasoning) (?:puzzle|problem|question|riddle|test)s?\b|\b(?:solve|answer) (?:this|the) (?:riddle|puzzle)\b|\bbrain ?teaser\b`,
		`\bdoes(?: not|n't|n’t) belong\b|\bcomes next in\b|\bnext (?:number|term|letter) in\b|\bodd one out\b`,
		`\bwhich of the following\b|\nb[).] |\n\(b\) `,
		`\bto the (?:left|right) of\b|\bexactly (?:one|two) of\b|\bis (?:taller|older|shorter|younger|heavier|faster) than\b|\bis the (?:father|mother|son|daughter|brother|sister) of\b`,
	}
}

func analysisExpressions() []string {
	return []string{
		`\banaly[sz](?:e|es|ing|is)\b|\bevaluat(?:e|es|ing|ion)\b|\bassess(?:es|ing|ment)?\b|\bcritically\b|\bcritique\b`,
		`\bcompar(?:e|es|ing|ison)\b|\bcontrast(?:s|ing)?\b|\btrade-?offs?\b|\bpros and cons\b|\bstrengths and weaknesses\b|\badvantages and disadvantages\b`,
		`\bdifferences? between\b|\bcorrelation\b|\brelate(?:s|d)? to\b|\bimplications? (?:of|for)\b|\broot causes?\b|\bjustify\b|\bexplain (?:why|how)\b|\bin[- ]depth\b`,
		`\bhypothes[ie]s\b|\bprinciples of\b|\bcase stud(?:y|ies)\b|\bdesign (?:a|an|the) [^\n]{0,40}\b(?:system|architecture|experiment|workflow)\b`,
	}
}

func extractionExpressions() []string {
	return []string{
		`\bextract (?:the|all|any|every|each|key|only|from|a list|information|data|names?|dates?|entities)\b|\bextracting (?:the|all|data|information)\b|\b(?:data|information|entity) extraction\b`,
		`\b(?:json|jsonl|csv|yaml|xml|tsv|toml)\b`,
		`\b(?:as|into) an? (?:\w{1,12} )?table\b|\b(?:markdown|html) table\b|\btable with (?:the )?columns\b`,
		`\bclassify (?:the|this|these|each|it|them|as|whether)\b|\bcategori[sz]e\b|\bthese categories\b|\bone of (?:the|these) (?:following )?(?:categories|labels)\b|\bsentiment (?:of|analysis|as)\b`,
		`\bidentify (?:the|all|any|each|every|which|whether)\b|\bnamed entit(?:y|ies)\b|\bkey[- ]value pairs?\b`,
		`\b(?:one|each) [^\n]{0,30}\b(?:per|separate|every|own) line\b|\bline[- ]by[- ]line\b|\bin the (?:following )?format\b|\boutput format\b`,
		`\b(?:following|given|these) (?:data|dataset|records|table|logs?|invoice|receipt|passages?)\b|\bcount how many times\b`,
		`\b(?:read|based on|according to|using) (?:the|this) (?:\w{1,10} )?(?:passage|paragraph|table|document|transcript|contract)\b`,
	}
}
