// Many clients at once, of whom the gateway sheds half at first. The Go driver
// says how many, and counts.
import { ask, client } from './support.js';

const [openai] = client();
const asks = Array.from({ length: Number(process.argv[2]) }, () => openai.chat.completions.create({ model: 'sim', messages: ask }));
const failures = (await Promise.allSettled(asks)).filter((answer) => answer.status === 'rejected');
for (const { reason } of failures) console.log(`${reason}`);
process.exitCode = failures.length > 0 ? 1 : 0;
