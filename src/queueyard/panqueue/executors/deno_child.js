// The program of a Deno child: loads the handler, and runs one job after the other. The other end is channel.py.
//
// A handler is the default export of its module: `export default async (job) => result`. The job has id, queueId, attempt,
// failures, key, token, payload, an AbortSignal as `signal`, and progress(value) and log(text).

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// Standard output is the line to the parent: whatever is printed goes to the log.
for (const name of ["log", "info", "debug"]) console[name] = console.error;

async function* messages(stream) {
  let received = new Uint8Array(0);
  for await (const piece of stream) {
    const longer = new Uint8Array(received.length + piece.length);
    longer.set(received);
    longer.set(piece, received.length);
    received = longer;
    while (received.length >= 4) {
      const end = 4 + new DataView(received.buffer, received.byteOffset).getUint32(0);
      if (received.length < end) break;
      yield JSON.parse(decoder.decode(received.subarray(4, end)));
      received = received.subarray(end);
    }
  }
}

let sending = Promise.resolve();

function send(message) {
  const text = encoder.encode(JSON.stringify(message));
  const frame = new Uint8Array(4 + text.length);
  new DataView(frame.buffer).setUint32(0, text.length);
  frame.set(text, 4);
  sending = sending.then(async () => {
    for (let sent = 0; sent < frame.length;) sent += await Deno.stdout.write(frame.subarray(sent));
  });
  return sending;
}

let abort = new AbortController();
let replies = [];
let speaking = Promise.resolve();

// One note at a time, each with its reply; once the job was cancelled nobody listens.
function say(note) {
  speaking = speaking.catch(() => {}).then(() => {
    if (abort.signal.aborted) throw new Error("the job was cancelled");
    return new Promise((resolve, reject) => {
      replies.push((reply) => reply.error ? reject(new Error(reply.error)) : resolve());
      send(note);
    });
  });
  return speaking;
}

async function run(handle, message, keepsResult) {
  const job = {
    id: message.id,
    queueId: message.queue_id,
    attempt: message.attempt,
    failures: message.failures,
    key: message.key,
    token: message.token,
    payload: message.payload,
    signal: abort.signal,
    progress: (value) => say({ type: "progress", value: value ?? null }),
    log: (text) => say({ type: "log", text: String(text) }),
  };
  try {
    const value = await handle(job);
    await speaking.catch(() => {});
    await send({ type: "done", value: keepsResult ? value ?? null : null });
  } catch (fault) {
    await speaking.catch(() => {});
    await send({ type: "failed", message: String(fault?.message ?? fault), final: fault?.unrecoverable === true });
  }
}

const incoming = messages(Deno.stdin.readable);
const hello = (await incoming.next()).value;
let handle;
try {
  handle = (await import(hello.handler)).default;
  if (typeof handle !== "function") throw new Error("its default export is no function");
  await send({ type: "ready" });
} catch (fault) {
  await send({ type: "broken", message: String(fault?.message ?? fault) });
  Deno.exit(1);
}
for await (const message of incoming) {
  if (message.type === "run") {
    abort = new AbortController();
    replies = [];
    run(handle, message, hello.keeps_result);
  } else if (message.type === "reply") {
    replies.shift()?.(message);
  } else if (message.type === "cancel") {
    abort.abort();
    for (const settle of replies.splice(0)) settle({ error: "the job was cancelled" });
  } else if (message.type === "stop") {
    break;
  }
}
Deno.exit(0);
