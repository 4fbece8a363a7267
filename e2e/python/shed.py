"""Many requests at once; the gateway sheds half of the first attempts. The Go driver sets their number and counts."""

import asyncio
import sys

from support import ASK, async_client


async def main():
    client, _ = async_client()
    async with client:
        asks = [client.chat.completions.create(model="sim", messages=ASK) for _ in range(int(sys.argv[1]))]
        answers = await asyncio.gather(*asks, return_exceptions=True)
    failures = [a for a in answers if isinstance(a, BaseException)]
    for failure in failures:
        print(f"{type(failure).__name__}: {failure}")
    raise SystemExit(1 if failures else 0)


asyncio.run(main())
