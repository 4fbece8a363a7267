// Scrolls through a full list of decisions beside live traffic and prints the long tasks of the page and its heap:
// node scroll.mjs TIERWAY
import { openPage, withDemo } from "./demo.mjs";

const [program] = process.argv.slice(2);
const load = 50; // requests per second
const wanted = 5000; // rows
const fillTime = 200_000; // in ms
const passes = 3;
const liveTime = 30_000; // in ms

await withDemo(program, load, async (demo, browser) => {
  const page = await openPage(demo, browser, "/decisions");
  const session = await page.context().newCDPSession(page);
  const heap = async () => {
    await session.send("HeapProfiler.collectGarbage");
    return (await session.send("Runtime.getHeapUsage")).usedSize / 1e6;
  };
  const table = page.getByRole("table", { name: "Decisions" });
  await table.waitFor();
  const empty = await heap();
  const rows = async () => Number(await table.getAttribute("aria-rowcount")) - 1;
  for (const begin = Date.now(); (await rows()) < wanted; ) {
    if (Date.now() - begin > fillTime) throw new Error(`${await rows()} of ${wanted} rows after ${fillTime} ms`);
    await page.waitForTimeout(1000);
  }
  console.log(`rows: ${await rows()}; heap: ${empty.toFixed(1)} MB at the start, ${(await heap()).toFixed(1)} MB now`);
  for (let pass = 1; pass <= passes; pass++) {
    const { frames, tasks, duration } = await page.evaluate(scrollThrough);
    const longest = Math.max(0, ...tasks).toFixed(0);
    console.log(
      `pass ${pass}: ${frames} frames in ${(duration / 1000).toFixed(1)} s; ${tasks.length} tasks above 50 ms, the longest ${longest} ms`,
    );
  }
  await page.waitForTimeout(liveTime);
  console.log(`rows: ${await rows()}; heap: ${(await heap()).toFixed(1)} MB after ${liveTime / 1000} s of live rows`);
});

/** Scrolls from the newest row to the oldest and back, half a view per frame. */
async function scrollThrough() {
  const box = document.querySelector('[role="region"][aria-label="Decisions"]');
  const tasks = [];
  const note = (list) => tasks.push(...list.getEntries().map((task) => task.duration));
  const observer = new PerformanceObserver(note);
  observer.observe({ type: "longtask" });
  await new Promise((done) => setTimeout(done));
  for (const end = performance.now() + 60; performance.now() < end; ); // a long task that must be observed
  const begin = performance.now();
  let frames = 0;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const step = box.clientHeight / 2;
  for (const direction of [1, -1]) {
    const end = direction > 0 ? box.scrollHeight - box.clientHeight : 0;
    while (Math.abs(box.scrollTop - end) > 1) {
      const next = box.scrollTop + direction * step;
      box.scrollTop = direction > 0 ? Math.min(next, end) : Math.max(next, end);
      frames++;
      await frame();
    }
  }
  const duration = performance.now() - begin;
  await new Promise((done) => setTimeout(done, 200)); // entries arrive late
  note({ getEntries: () => observer.takeRecords() });
  observer.disconnect();
  if (!tasks.length) throw new Error("the browser does not report long tasks");
  tasks.shift();
  return { frames, tasks, duration };
}
