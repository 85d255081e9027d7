// Runs the program with a few ring pools: one is far too small, and one has a hostile name.
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const TOKEN = 'a-token-of-the-tests-0123456789';
const TOKEN_SHA256 = 'af302123040d812ad3584e5d695d360b9164fe78912d741368fb068de6202952';
const SECRET = 'a-secret-of-the-provider-0123456789';
export const HOSTILE = '"><script>alert(1)</script>\u202egnp.exe<img src=x onerror=alert(2)>';

const settings = (more) => `
data = "data"
listen = ["127.0.0.1:0"]
shards = 2
journal.segment_bytes = "4MiB"
durability = "os"
drain_pause = "0s"
log.format = "json"
deadline = "1s"
[management]
token_sha256 = ["${TOKEN_SHA256}"]
address = "127.0.0.1:0"
dashboard = true
requests_per_second = 10000
[[ring_pool]]
id = 1
name = "Spring sale"
ring_pool_key = "key-of-the-shop"
lifetime = "30m"
numbers = ["2125550000-2125550099"]
overflow_number = "2125559999"
[[ring_pool]]
id = 2
name = "Too small"
ring_pool_key = "key-of-the-shop"
lifetime = "30m"
numbers = ["2125551000-2125551003"]
overflow_number = "2125559999"
[[ring_pool]]
id = 3
name = ${JSON.stringify(HOSTILE)}
ring_pool_key = "key-of-the-shop"
lifetime = "30m"
numbers = ["2125552000-2125552099"]
overflow_number = "2125559999"
[calls]
listen = "127.0.0.1:0"
[[calls.account]]
name = "main"
provider = "twilio"
public_url = "https://calls.example"
secret_files = ["main.secret"]
[[calls.destination]]
ring_pools = [1, 2, 3]
to = ["+18005550199"]
[[site]]
key = "pk_shop"
origins = ["http://127.0.0.1:1"]
[[site.swap]]
number = "+18005550100"
ring_pool = 1
${more}`;

/** Settings that store ring pools and sites in a database, so that they can be changed. */
export const DATABASE = `[directory]
database = "sqlite:directory.sqlite"
[inventory]
check_numbers = "possible"
`;

/** Starts the program with additional settings; returns its addresses, and a function that ends it. */
export const start = async (more = '') => {
  const folder = mkdtempSync(join(tmpdir(), 'ringwell-dashboard-'));
  const config = join(folder, 'ringwell.toml');
  writeFileSync(config, settings(more));
  writeFileSync(join(folder, 'main.secret'), SECRET, { mode: 0o600 });
  const server = spawn(process.env.RINGWELL_BIN, ['serve', '--config', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  const stop = async () => {
    const ended = new Promise((done) => server.once('exit', done));
    server.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const found = {};
  const said = [];
  const lines = createInterface({ input: server.stderr });
  for await (const line of lines) {
    said.push(line);
    const address = /127\.0\.0\.1:\d+/.exec(line)?.[0];
    if (address && line.includes('"message":"management"')) found.ui = `http://${address}`;
    if (address && line.includes('"serving"')) found.api = `http://${address}`;
    if (address && line.includes('"message":"calls"')) found.calls = `http://${address}`;
    if (found.ui && found.api && found.calls) {
      server.stderr.resume();
      return { ...found, stop };
    }
  }
  throw new Error(`the program has not started: ${said.join('\n')}`);
};

/** Posts a signed form to the account's hook, like Twilio; returns the server's answer. */
export const provider = async (calls, target, fields) => {
  const signed = Object.entries(fields).sort(([one], [other]) => (one < other ? -1 : 1)).flat().join('');
  const signature = createHmac('sha1', SECRET).update(`https://calls.example${target}${signed}`).digest('base64');
  const headers = { 'content-type': 'application/x-www-form-urlencoded', 'x-twilio-signature': signature };
  const answer = await fetch(`${calls}${target}`, { method: 'POST', headers, body: new URLSearchParams(fields) });
  return { status: answer.status, text: await answer.text() };
};

/** Requests a number of ring pool `pool`, with these parameters. */
export const allocate = async (api, pool, params = {}) => {
  const query = new URLSearchParams({ ring_pool_key: 'key-of-the-shop', ...params });
  const answer = await fetch(`${api}/api/2013-07-01/ring_pools/${pool}/allocate_number.json?${query}`);
  return answer.json();
};
