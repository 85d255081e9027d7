// Verifies webhooks with the Standard Webhooks library. Each webhook is one line of JSON on
// standard input.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(process.argv[2] + "/");
const { Webhook } = require("standardwebhooks");
const lines = readFileSync(0, "utf8").split("\n").filter((line) => line);
for (const line of lines) {
  const { secret, headers, body } = JSON.parse(line);
  new Webhook(secret).verify(body, headers);
}
console.log(`${lines.length} verified`);
