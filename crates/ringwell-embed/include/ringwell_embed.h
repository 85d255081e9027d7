/* The engine of Ringwell inside a process: bytes of a batch in, bytes of its answer out.
 * docs/spec/embed.md specifies each function. */
#ifndef RINGWELL_EMBED_H
#define RINGWELL_EMBED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RINGWELL_EMBED_ABI_VERSION 1

/* Positive values are the HTTP status of a refused batch. */
#define RINGWELL_EMBED_OK 0
#define RINGWELL_EMBED_INVALID (-1)
#define RINGWELL_EMBED_FORKED (-2)
#define RINGWELL_EMBED_PANICKED (-3)
#define RINGWELL_EMBED_CLOSED (-4)
#define RINGWELL_EMBED_NOT_OPENED (-5)
#define RINGWELL_EMBED_NOT_STORED (-6)

/* Bytes that belong to the engine until they are passed to ringwell_embed_free. */
typedef struct {
  uint8_t *at;
  size_t len;
  size_t room;
} ringwell_embed_bytes;

uint32_t ringwell_embed_abi_version(void);
int32_t ringwell_embed_open(const uint8_t *options, size_t options_len, uint64_t *handle,
                            ringwell_embed_bytes *out);
int32_t ringwell_embed_bulk(uint64_t handle, const uint8_t *body, size_t body_len,
                            const uint8_t *key, size_t key_len, uint64_t deadline_ms,
                            ringwell_embed_bytes *out);
int32_t ringwell_embed_status(uint64_t handle, ringwell_embed_bytes *out);
int32_t ringwell_embed_flush(uint64_t handle, ringwell_embed_bytes *out);
int32_t ringwell_embed_snapshot(uint64_t handle, ringwell_embed_bytes *out);
int32_t ringwell_embed_close(uint64_t handle, ringwell_embed_bytes *out);
void ringwell_embed_free(ringwell_embed_bytes *out);

#ifdef __cplusplus
}
#endif

#endif
