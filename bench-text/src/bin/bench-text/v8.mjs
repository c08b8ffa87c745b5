// Runs the guest in V8. Commands come as lines of JSON on stdin, each is answered by one line on stdout.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const now = () => Number(process.hrtime.bigint() % 1000000000000000n);
const module = new WebAssembly.Module(readFileSync(process.argv.at(-1)));
const guest = new WebAssembly.Instance(module, { env: { bench_now: now } }).exports;

function give(file) {
  const bytes = readFileSync(file);
  const place = guest.reserve(bytes.length);
  new Uint8Array(guest.memory.buffer, place, bytes.length).set(bytes);
}

const commands = {
  load({ profile, body }) {
    give(profile);
    guest.take_profile();
    give(body);
    return guest.take_body();
  },
  measure: ({ phase, rounds }) => guest.measure(phase, rounds),
  count({ phase }) {
    guest.count(phase);
    return [guest.counted_calls(), guest.counted_bytes(), guest.counted_peak()];
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  process.stdout.write(JSON.stringify(commands[command.do](command)) + '\n');
}
