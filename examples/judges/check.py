#!/usr/bin/env python3
"""A judge for learning.replay that checks what a program can check: results of calculations, and answers that must be
JSON. It reads a request with two answers from standard input and prints a verdict for each answer. If it cannot check
the request, it ends with status 3, and the request has no labels. It needs only Python 3."""
import ast
import fractions
import json
import operator
import re
import sys

OPERAND = r"\(*\d+(?:\.\d+)?\)*"
# Without spaces, - and / are parts of dates and names, and x is one of sizes.
CALCULATION = re.compile(OPERAND + r"(?:(?:\s*[+*×÷]\s*|\s+[-/x]\s+)" + OPERAND + ")+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
MAX_LENGTH = 200  # characters of a calculation


def last_user_text(request):
    """Returns the text of the last message of a user."""
    last = request.get("messages") or request.get("input") or request.get("prompt") or ""
    if isinstance(last, list):
        last = next((m for m in reversed(last) if isinstance(m, dict) and m.get("role") == "user"), {}).get("content", "")
    if isinstance(last, list):
        last = " ".join(part.get("text", "") for part in last if isinstance(part, dict))
    return last if isinstance(last, str) else ""


def evaluate(node):
    """Returns the value of a calculation, without rounding."""
    if isinstance(node, ast.Constant):
        return fractions.Fraction(str(node.value))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right))
    raise ValueError("no calculation")


def result_of(text):
    """Returns the result of the only calculation in a text."""
    found = CALCULATION.findall(text)
    if len(found) != 1 or len(found[0]) > MAX_LENGTH:
        raise ValueError("not one calculation")
    return evaluate(ast.parse(re.sub("[x×]", "*", found[0]).replace("÷", "/"), mode="eval").body)


def is_json(answer):
    try:
        json.loads(answer)
        return True
    except ValueError:
        return False


def grader(request):
    """Returns a function that grades an answer to the request."""
    form = request.get("response_format") or (request.get("text") or {}).get("format") or {}
    if form.get("type") in ("json_object", "json_schema"):
        return is_json
    expected = result_of(last_user_text(request))
    # The last number of an answer is its result: models write the calculation before it.
    return lambda answer: [fractions.Fraction(n) for n in NUMBER.findall(answer.replace(",", ""))][-1:] == [expected]


if __name__ == "__main__":
    pair = json.load(sys.stdin)
    try:
        grade = grader(pair["request"])
    except (ValueError, SyntaxError, ZeroDivisionError):
        sys.exit(3)
    print(json.dumps({tier: grade(answer) for tier, answer in pair["answers"].items()}))
