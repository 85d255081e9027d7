// Node's built-in fetch, and JSON.stringify.
const [base, pool, key, keyword] = process.argv.slice(2);
const query = new URLSearchParams({ ring_pool_key: key, keyword });
const suffix = `${pool}/allocate_number.json?${query}`;
const post = (body) =>
  fetch(`${base}/api/2013-07-01/bulk.json`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
const requests = ["a/b&c", 7].map((request_id) => ({ api_suffix: suffix, request_id }));
const { responses } = await (await post({ requests })).json();
console.log("bulk", ...responses.flatMap((row) => [row.promo_number, row.request_id]));
const single = await fetch(`${base}/api/2015-12-09/ring_pools/${suffix}`);
console.log("single", (await single.json()).promo_number);
const refused = await post([]);
console.log("refused", refused.status, (await refused.json()).errors.class);
