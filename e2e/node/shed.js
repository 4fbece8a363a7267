// Many requests at once; the gateway sheds half of the first attempts. The Go driver
// sets their number and counts the attempts.
import { ask, client } from './support.js';

const [openai] = client();
const asks = Array.from({ length: Number(process.argv[2]) }, () => openai.chat.completions.create({ model: 'sim', messages: ask }));
const failures = (await Promise.allSettled(asks)).filter((answer) => answer.status === 'rejected');
for (const { reason } of failures) console.log(`${reason}`);
process.exitCode = failures.length > 0 ? 1 : 0;
