// An idiomatic ring pool server for Node: fastify, all pools in memory, nothing stored on disk.
//
// node --max-semi-space-size=64 server.js PORT POOLS.csv

import { readFileSync } from "node:fs";
import fastify from "fastify";

const [port, list] = process.argv.slice(2);

/** Reads a list of pools that `ringwell demo` wrote. Returns the pools by id. */
function readPools(path) {
  const [, ...lines] = readFileSync(path, "utf8").trimEnd().split("\n");
  return new Map(lines.map((line) => {
    const [id, key, overflow, lifetime, first, count] = line.split(",");
    const numbers = Array.from({ length: Number(count) }, (_, i) => said(Number(first) + i));
    // Numbers in the order of allocation. They become free in the same order, because all lockouts
    // have the same length. Times in milliseconds since the start.
    return [id, {
      key, numbers, next: 0, lockout: Number(lifetime) * 1000,
      freeAt: new Float64Array(numbers.length),
      overflow: overflow === "" ? undefined : said(Number(overflow)),
    }];
  }));
}

/** Formats a number once, in the two forms that an answer contains. */
function said(number) {
  const digits = String(number);
  const formatted = `${digits.slice(0, 3)}-${digits.slice(3, 6)}-${digits.slice(6)}`;
  return { formatted, digits };
}

const pools = readPools(list);

/** Returns the pool's number that has been free longest, or undefined if all are locked out. */
function allocate(pool, now) {
  const { next, freeAt } = pool;
  if (!(freeAt[next] <= now)) return undefined;
  freeAt[next] = now + pool.lockout;
  pool.next = next + 1 === freeAt.length ? 0 : next + 1;
  return pool.numbers[next];
}

/** Returns the key from the parameters. Only the key is decoded. */
function keyOf(suffix) {
  const name = "ring_pool_key=";
  let at = suffix.indexOf("?") + 1;
  while (at > 0 && !suffix.startsWith(name, at)) at = suffix.indexOf("&", at) + 1;
  if (at === 0) return "";
  const end = suffix.indexOf("&", at);
  const key = suffix.slice(at + name.length, end < 0 ? suffix.length : end);
  if (!key.includes("%") && !key.includes("+")) return key;
  try {
    return decodeURIComponent(key.replaceAll("+", " "));
  } catch {
    return key; // not a valid key anyway
  }
}

function answer({ api_suffix: suffix, request_id }, now) {
  const start = suffix.startsWith("ring_pools/") ? 11 : 0;
  const id = suffix.slice(start, suffix.indexOf("/", start));
  const key = keyOf(suffix);
  const pool = pools.get(id);
  if (pool === undefined || pool.key !== key) {
    const message = `API Key '${key}' is not valid for resource '${id}'`;
    return { request_id, error_class: "InvalidKey", message };
  }
  const number = allocate(pool, now) ?? pool.overflow;
  if (number === undefined) {
    return { request_id, error_class: "PoolExhausted", message: "All numbers are in use" };
  }
  const row = {
    request_id, // omitted by JSON.stringify if undefined
    promo_number_formatted: number.formatted,
    promo_number: number.digits,
    tracking_url: "", // these pools have none
  };
  if (number === pool.overflow) row.overflow = true;
  return row;
}

const server = fastify({ logger: false });

// Any Content-Type is treated as JSON and parsed only by JSON.parse. Fastify's own parser also
// looks for "__proto__", which is harmless here.
server.removeAllContentTypeParsers();
server.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => {
  try {
    done(null, JSON.parse(body));
  } catch (error) {
    error.statusCode = 400;
    done(error);
  }
});

server.get("/readyz", (_request, reply) => reply.send("ready"));

server.post("/api/:date/bulk.json", (request, reply) => {
  const begun = performance.now();
  const rows = request.body?.requests;
  if (!Array.isArray(rows) || rows.length === 0) {
    reply.code(403).send({ errors: { class: "InvalidInput" } });
    return;
  }
  const text = JSON.stringify({ responses: rows.map((row) => answer(row, begun)) });
  reply
    .header("content-type", "application/json")
    .header("processing-time", Math.trunc(performance.now() - begun))
    .send(text);
});

await server.listen({ port: Number(port), host: "127.0.0.1" });
