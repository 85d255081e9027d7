// Builds dist/rw.js from src/. `node build.js --check` fails if the committed file differs or is
// too large for a page.
import { readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';
import { minify } from 'terser';

/** The maximum compressed size. */
const GZIP_BYTES_MAX = 2560;

const file = new URL('dist/rw.js', import.meta.url);
const { outputFiles } = buildSync({
  entryPoints: [new URL('src/index.js', import.meta.url).pathname],
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['es2020'],
  charset: 'ascii',
  legalComments: 'none',
  write: false,
});
const options = { ecma: 2020, compress: { passes: 3, unsafe: true, booleans_as_integers: true, reduce_funcs: false, collapse_vars: false }, mangle: { properties: { regex: /^(regexp|digits)$/ } }, toplevel: true };
const built = (await minify(outputFiles[0].text, options)).code;
const gzip = gzipSync(built, { level: 9 }).length;
console.log(`dist/rw.js: ${built.length} bytes, ${gzip} compressed (at most ${GZIP_BYTES_MAX})`);
if (process.argv.includes('--check')) {
  if (readFileSync(file, 'utf8') !== built) {
    console.error('dist/rw.js is not what src/ builds: run `npm run build` and commit it');
    process.exit(1);
  }
} else {
  writeFileSync(file, built);
}
if (gzip > GZIP_BYTES_MAX) {
  console.error('dist/rw.js is too large');
  process.exit(1);
}
