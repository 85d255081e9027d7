// axios, with its defaults.
const axios = require("axios");
const [base, pool, key, keyword] = process.argv.slice(2);
const bulk = `${base}/api/2013-07-01/bulk.json`;

(async () => {
  const query = new URLSearchParams({ ring_pool_key: key, keyword });
  const api_suffix = `${pool}/allocate_number.json?${query}`;
  const requests = ["a/b&c", 7].map((request_id) => ({ request_id, api_suffix }));
  const { data } = await axios.post(bulk, { requests });
  console.log("bulk", ...data.responses.flatMap((row) => [row.promo_number, row.request_id]));
  const path = `${base}/api/2015-12-09/ring_pools/${pool}/allocate_number.json`;
  const single = await axios.get(path, { params: { ring_pool_key: key, keyword } });
  console.log("single", single.data.promo_number);
  const refused = await axios.post(bulk, []).catch((error) => error.response);
  console.log("refused", refused.status, refused.data.errors.class);
})();
