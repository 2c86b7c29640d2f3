import { Queue, Worker } from 'bullmq';
const [what, count, port] = [process.argv[2], +process.argv[3], +process.argv[4]];
const connection = { host: '127.0.0.1', port };
const told = (n, start) => { console.log(JSON.stringify(n / ((performance.now() - start) / 1000))); process.exit(0); };
if (what === 'work') {
  let seen = 0, first = 0;
  new Worker('bench', async () => {
    if (++seen === 1) first = performance.now();
    if (seen === count) told(count - 1, first);
  }, { connection: { ...connection, maxRetriesPerRequest: null }, concurrency: 100 });
} else {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const start = performance.now();
  if (what === 'single') for (let n = 0; n < count; n++) await queue.add('job', { n });
  else for (let n = 0; n < count; n += 500) await queue.addBulk(Array.from({ length: 500 }, (_, i) => ({ name: 'job', data: { n: n + i } })));
  told(count, start);
}
