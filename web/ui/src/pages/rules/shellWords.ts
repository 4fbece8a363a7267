/** Part is one piece of a word, and the position after it. */
interface Part {
  text: string;
  end: number;
}

/** shellWords splits a shell command into words. It knows quotes, escapes, $'…' and continued lines. */
export function shellWords(command: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let at = 0;
  while (at < command.length) {
    if (/\s/.test(command[at]!)) {
      if (word !== undefined) words.push(word);
      word = undefined;
      at++;
    } else if (command.startsWith("\\\n", at)) {
      at += 2;
    } else {
      const part = partAt(command, at);
      word = (word ?? "") + part.text;
      at = part.end;
    }
  }
  if (word !== undefined) words.push(word);
  return words;
}

function partAt(command: string, at: number): Part {
  if (command.startsWith("$'", at)) return ansiQuoted(command, at + 2);
  switch (command[at]) {
    case "'":
      return singleQuoted(command, at + 1);
    case '"':
      return doubleQuoted(command, at + 1);
    case "\\":
      return { text: command[at + 1] ?? "", end: at + 2 };
  }
  return { text: command[at]!, end: at + 1 };
}

function singleQuoted(command: string, from: number): Part {
  const end = command.indexOf("'", from);
  if (end < 0) throw new Error("A quote ' is not closed.");
  return { text: command.slice(from, end), end: end + 1 };
}

/** ansiQuoted reads $'…', in which a backslash escapes quotes and writes newlines and tabs. */
function ansiQuoted(command: string, from: number): Part {
  const [raw, text] = /^((?:[^'\\]|\\[\s\S])*)'/.exec(command.slice(from)) ?? [];
  if (raw === undefined || text === undefined) throw new Error("A quote ' is not closed.");
  const escapes: Record<string, string> = { n: "\n", t: "\t" };
  return { text: text.replaceAll(/\\([nt'"\\])/g, (_, e: string) => escapes[e] ?? e), end: from + raw.length };
}

function doubleQuoted(command: string, from: number): Part {
  let text = "";
  for (let at = from; at < command.length; at++) {
    if (command[at] === '"') return { text, end: at + 1 };
    if (command[at] === "\\" && /["\\$`]/.test(command[at + 1] ?? "")) at++;
    text += command[at];
  }
  throw new Error('A quote " is not closed.');
}
