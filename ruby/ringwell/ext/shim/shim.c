/* The engine's C ABI for Ruby without Fiddle: Ringwell::Engine::Shim.
 *
 * Loads the same library by its path, and converts strings to bytes and back. Does not interpret
 * the bytes or statuses: a status other than 0 is passed to Ringwell::Engine::Library.refuse, which
 * raises.
 * Bytes that the library has written are always freed, even if Ruby raises. */
#include <dlfcn.h>
#include <ruby.h>
#include <ruby/encoding.h>
#include <ruby/thread.h>

#include "ringwell_embed.h"

typedef int32_t (*task_function)(uint64_t, ringwell_embed_bytes *);

struct library {
  uint32_t (*abi_version)(void);
  int32_t (*open)(const uint8_t *, size_t, uint64_t *, ringwell_embed_bytes *);
  int32_t (*bulk)(uint64_t, const uint8_t *, size_t, const uint8_t *, size_t, uint64_t,
                  ringwell_embed_bytes *);
  task_function status, flush, snapshot, close;
  void (*free)(ringwell_embed_bytes *);
  /* Whether `bulk` releases the GVL. */
  bool release_gvl;
};

/* One call to the library: its input and its output. */
struct call {
  const struct library *library;
  void *(*work)(void *);
  bool release_gvl;
  task_function task;
  uint64_t handle;
  const uint8_t *text;
  size_t text_len;
  const uint8_t *key;
  size_t key_len;
  uint64_t deadline_ms;
  int32_t status;
  ringwell_embed_bytes out;
};

/* The library stays loaded, because one of its engines may outlive the object. */
static const rb_data_type_t library_type = {
    .wrap_struct_name = "Ringwell::Engine::Shim",
    .function = {.dfree = RUBY_DEFAULT_FREE},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE shim_allocate(VALUE type) {
  struct library *library;
  return TypedData_Make_Struct(type, struct library, &library_type, library);
}

static struct library *library_of(VALUE self) {
  struct library *library = rb_check_typeddata(self, &library_type);
  if (library->free == NULL) rb_raise(rb_eTypeError, "the library is not loaded");
  return library;
}

static void *do_open(void *data) {
  struct call *call = data;
  call->status = call->library->open(call->text, call->text_len, &call->handle, &call->out);
  return NULL;
}

static void *do_bulk(void *data) {
  struct call *call = data;
  call->status = call->library->bulk(call->handle, call->text, call->text_len, call->key,
                                     call->key_len, call->deadline_ms, &call->out);
  return NULL;
}

static void *do_task(void *data) {
  struct call *call = data;
  call->status = call->task(call->handle, &call->out);
  return NULL;
}

static VALUE answer(VALUE data) {
  struct call *call = (struct call *)data;
  /* There is no unblock function: the library's writes must not be interrupted. */
  if (call->release_gvl)
    rb_thread_call_without_gvl(call->work, call, NULL, NULL);
  else
    call->work(call);
  VALUE bytes = rb_utf8_str_new((const char *)call->out.at, (long)call->out.len);
  if (call->status == 0) return bytes;
  return rb_funcall(rb_path2class("Ringwell::Engine::Library"), rb_intern("refuse"), 2,
                    INT2NUM(call->status), bytes);
}

static VALUE give_back(VALUE data) {
  struct call *call = (struct call *)data;
  /* If the call has written nothing, this is empty, and freeing it does nothing. */
  call->library->free(&call->out);
  return Qnil;
}

static VALUE perform(struct call *call) {
  return rb_ensure(answer, (VALUE)call, give_back, (VALUE)call);
}

/* Returns a string whose bytes do not change during the call. Without the GVL, another thread might
 * change the original. */
static VALUE steady(VALUE text, bool release_gvl) {
  StringValue(text);
  return release_gvl ? rb_str_new_frozen(text) : text;
}

static void *symbol(void *loaded, VALUE path, const char *name) {
  void *found = dlsym(loaded, name);
  if (found == NULL)
    rb_raise(rb_eLoadError, "%" PRIsVALUE " has no function %s", path, name);
  return found;
}

/* Shim.new(path, release_gvl): raises LoadError if the library is not an engine. */
static VALUE shim_initialize(VALUE self, VALUE path, VALUE release_gvl) {
  struct library *library = rb_check_typeddata(self, &library_type);
  void *loaded = dlopen(StringValueCStr(path), RTLD_NOW | RTLD_LOCAL);
  if (loaded == NULL) rb_raise(rb_eLoadError, "%s", dlerror());
  *(void **)&library->abi_version = symbol(loaded, path, "ringwell_embed_abi_version");
  *(void **)&library->open = symbol(loaded, path, "ringwell_embed_open");
  *(void **)&library->bulk = symbol(loaded, path, "ringwell_embed_bulk");
  *(void **)&library->status = symbol(loaded, path, "ringwell_embed_status");
  *(void **)&library->flush = symbol(loaded, path, "ringwell_embed_flush");
  *(void **)&library->snapshot = symbol(loaded, path, "ringwell_embed_snapshot");
  *(void **)&library->close = symbol(loaded, path, "ringwell_embed_close");
  *(void **)&library->free = symbol(loaded, path, "ringwell_embed_free");
  library->release_gvl = RTEST(release_gvl);
  return self;
}

static VALUE shim_abi_version(VALUE self) { return UINT2NUM(library_of(self)->abi_version()); }

/* open(options) => handle */
static VALUE shim_open(VALUE self, VALUE options) {
  options = steady(options, true);
  struct call call = {.library = library_of(self),
                      .work = do_open,
                      .release_gvl = true,
                      .text = (const uint8_t *)RSTRING_PTR(options),
                      .text_len = (size_t)RSTRING_LEN(options)};
  perform(&call);
  RB_GC_GUARD(options);
  return ULL2NUM(call.handle);
}

/* bulk(handle, body, key or nil, milliseconds) => bytes */
static VALUE shim_bulk(VALUE self, VALUE handle, VALUE body, VALUE key, VALUE milliseconds) {
  struct library *library = library_of(self);
  body = steady(body, library->release_gvl);
  struct call call = {.library = library,
                      .work = do_bulk,
                      .release_gvl = library->release_gvl,
                      .handle = NUM2ULL(handle),
                      .text = (const uint8_t *)RSTRING_PTR(body),
                      .text_len = (size_t)RSTRING_LEN(body),
                      .deadline_ms = NUM2ULL(milliseconds)};
  if (!NIL_P(key)) {
    key = steady(key, library->release_gvl);
    call.key = (const uint8_t *)RSTRING_PTR(key);
    call.key_len = (size_t)RSTRING_LEN(key);
  }
  VALUE bytes = perform(&call);
  RB_GC_GUARD(body);
  RB_GC_GUARD(key);
  return bytes;
}

static VALUE ask(VALUE self, VALUE handle, task_function task, bool release_gvl) {
  struct call call = {.library = library_of(self),
                      .work = do_task,
                      .release_gvl = release_gvl,
                      .task = task,
                      .handle = NUM2ULL(handle)};
  return perform(&call);
}

static VALUE shim_status(VALUE self, VALUE handle) {
  return ask(self, handle, library_of(self)->status, false);
}

static VALUE shim_flush(VALUE self, VALUE handle) {
  return ask(self, handle, library_of(self)->flush, true);
}

static VALUE shim_snapshot(VALUE self, VALUE handle) {
  return ask(self, handle, library_of(self)->snapshot, true);
}

static VALUE shim_close(VALUE self, VALUE handle) {
  return ask(self, handle, library_of(self)->close, true);
}

RUBY_FUNC_EXPORTED void Init_shim(void) {
  VALUE ringwell = rb_define_module("Ringwell");
  VALUE engine = rb_define_class_under(ringwell, "Engine", rb_cObject);
  VALUE shim = rb_define_class_under(engine, "Shim", rb_cObject);
  rb_define_alloc_func(shim, shim_allocate);
  rb_define_method(shim, "initialize", shim_initialize, 2);
  rb_define_method(shim, "abi_version", shim_abi_version, 0);
  rb_define_method(shim, "open", shim_open, 1);
  rb_define_method(shim, "bulk", shim_bulk, 4);
  rb_define_method(shim, "status", shim_status, 1);
  rb_define_method(shim, "flush", shim_flush, 1);
  rb_define_method(shim, "snapshot", shim_snapshot, 1);
  rb_define_method(shim, "close", shim_close, 1);
}
