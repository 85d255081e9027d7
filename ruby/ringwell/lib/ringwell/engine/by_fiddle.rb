# frozen_string_literal: true

require "fiddle"

module Ringwell
  class Engine
    # The functions of the engine's library, called through Ruby's standard library.
    #
    # All code that handles pointers is here. The C shim (ext/shim/shim.c) has the same methods and
    # is faster. {Library.refuse} explains each status other than 0.
    class ByFiddle
      # The size of three words that the library fills and clears: the address, length and capacity
      # of its bytes. Each call creates its own buffer. A copy of a constant would be wrong, because
      # `dup` copies on write: Ruby cannot detect the library's writes, so all threads would share
      # one buffer.
      BYTES_SIZE = 3 * Fiddle::SIZEOF_VOIDP
      HANDLE = -Fiddle::TYPE_LONG_LONG
      TEXT = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T].freeze
      private_constant :BYTES_SIZE, :HANDLE, :TEXT

      # @param path [String] the library
      # @param release_gvl [Boolean] whether `bulk` releases the GVL
      # @raise [LoadError] the library is not an engine
      def initialize(path, release_gvl)
        @dl = Fiddle.dlopen(path)
        @release_gvl = release_gvl
        @abi_version = function("abi_version", [], result: -Fiddle::TYPE_INT)
        @open = function("open", [*TEXT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP])
        @bulk = function("bulk", [HANDLE, *TEXT, *TEXT, HANDLE, Fiddle::TYPE_VOIDP],
          need_gvl: !release_gvl)
        @status = task("status", need_gvl: true)
        @flush, @snapshot, @close = %w[flush snapshot close].map { |name| task(name) }
        @free = function("free", [Fiddle::TYPE_VOIDP], result: Fiddle::TYPE_VOID, need_gvl: true)
      rescue Fiddle::DLError => error
        raise LoadError, error.message
      end

      # @return [Integer]
      def abi_version = @abi_version.call

      # @return [Integer] a handle
      def open(options)
        handle = "\0" * 8
        said { |out| @open.call(options, options.bytesize, handle, out) }
        handle.unpack1("Q")
      end

      # @param key [String, nil] the idempotency key
      # @return [String] the answer's bytes
      def bulk(handle, body, key, milliseconds)
        # Without the GVL, another thread might change the body during the call.
        body = body.dup if @release_gvl
        said do |out|
          @bulk.call(handle, body, body.bytesize, key, key ? key.bytesize : 0, milliseconds, out)
        end
      end

      # @return [String] the answer's bytes, like the three methods below
      def status(handle) = said { |out| @status.call(handle, out) }

      def flush(handle) = said { |out| @flush.call(handle, out) }

      def snapshot(handle) = said { |out| @snapshot.call(handle, out) }

      def close(handle) = said { |out| @close.call(handle, out) }

      private

      def function(name, types, result: Fiddle::TYPE_INT, **options)
        Fiddle::Function.new(@dl["ringwell_embed_#{name}"], types, result, **options)
      end

      # Methods that wait for the disk release the GVL.
      def task(name, need_gvl: false) = function(name, [HANDLE, Fiddle::TYPE_VOIDP], need_gvl:)

      # Returns the bytes that a call has written, if its status is 0.
      def said
        out = "\0" * BYTES_SIZE
        status = yield out
        bytes = text(*out.unpack("JJ"))
        status.zero? ? bytes : Library.refuse(status, bytes)
      ensure
        # If the call has written nothing, the buffer is empty, and freeing it does nothing.
        @free.call(out)
      end

      def text(at, size)
        (size.zero? ? +"" : Fiddle::Pointer.new(at)[0, size]).force_encoding(Encoding::UTF_8)
      end
    end
  end
end
