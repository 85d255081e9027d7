# frozen_string_literal: true

require "fiddle"
require "rbconfig"

module Ringwell
  class Engine
    # The engine's library: finds it, and turns bytes and statuses of its C ABI into Ruby's.
    #
    # Owns all that is known of pointers. A call that takes microseconds keeps the GVL: given up, it
    # would come back a time slice of another thread later, 100 ms. Calls that wait for the disk for
    # longer give it up.
    class Library
      ABI_VERSION = 1

      FORKED = -2
      PANICKED = -3

      # Three words, which the library fills and empties: where its bytes are, how many, how much
      # room.
      BYTES = "\0" * (3 * Fiddle::SIZEOF_VOIDP)
      private_constant :BYTES

      class << self
        # The library: RINGWELL_EMBED, what lies beside this file, or what cargo has built.
        #
        # @raise [ConfigError] there is none
        def path(environment = ENV)
          given = environment["RINGWELL_EMBED"]
          found = [*given, *places(environment)].find { |place| File.file?(place) }
          return found if found && (given.nil? || given == found)

          raise ConfigError, "no engine at #{given}: RINGWELL_EMBED names the library" if given

          raise ConfigError, "no engine: cargo build --release -p ringwell-embed, and set " \
                             "RINGWELL_EMBED to lib#{NAME}"
        end

        NAME = "ringwell_embed.#{RbConfig::CONFIG["SOEXT"]}"
        private_constant :NAME

        private

        def places(environment)
          root = File.expand_path("../../../../..", __dir__)
          targets = [*environment["CARGO_TARGET_DIR"], "#{root}/target"]
          built = targets.product(%w[release debug]).map { |parts| parts.join("/") }
          [__dir__, *built].map { |folder| "#{folder}/lib#{NAME}" }
        end
      end

      # @return [String] the file
      attr_reader :path

      # @param release_gvl [Boolean] whether `bulk` gives up the GVL too
      def initialize(path = Library.path, release_gvl: false)
        @path = path
        @dl = Fiddle.dlopen(path)
        check(function("abi_version", [], result: -Fiddle::TYPE_INT).call)
        @open = function("open", [*TEXT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP])
        @bulk = function("bulk", [HANDLE, *TEXT, *TEXT, HANDLE, Fiddle::TYPE_VOIDP],
                         need_gvl: !release_gvl)
        @tasks = %i[flush snapshot close].to_h { |name| [name, task(name, need_gvl: false)] }
        @tasks[:status] = task(:status, need_gvl: true)
        @free = function("free", [Fiddle::TYPE_VOIDP], result: Fiddle::TYPE_VOID, need_gvl: true)
      rescue Fiddle::DLError => error
        raise AbiMismatch, "#{path} is no engine: #{error.message}"
      end

      # @param version [Integer] of the library
      # @raise [AbiMismatch] unless it is the gem's
      def check(version)
        version == ABI_VERSION or
          raise AbiMismatch, "#{path} has version #{version} of the interface, this gem needs " \
                             "#{ABI_VERSION}: use the library of the same release"
      end

      # @return [Integer] a handle
      def open(options)
        handle = "\0" * 8
        said { |out| @open.call(options, options.bytesize, handle, out) }
        handle.unpack1("Q")
      end

      # @param milliseconds [Integer] 0 for the configured deadline
      # @return [String] the bytes of the answer
      def bulk(handle, body, key, milliseconds)
        said do |out|
          @bulk.call(handle, body, body.bytesize, key, key ? key.bytesize : 0, milliseconds, out)
        end
      end

      # @param name [Symbol] :status, :flush, :snapshot or :close
      # @return [String] the bytes of the answer
      def ask(name, handle) = said { |out| @tasks.fetch(name).call(handle, out) }

      private

      HANDLE = -Fiddle::TYPE_LONG_LONG
      TEXT = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T].freeze
      private_constant :HANDLE, :TEXT

      def function(name, types, result: Fiddle::TYPE_INT, **options)
        Fiddle::Function.new(@dl["ringwell_embed_#{name}"], types, result, **options)
      end

      def task(name, **options) = function(name, [HANDLE, Fiddle::TYPE_VOIDP], **options)

      # The bytes that a call has written, or what its status means.
      def said
        out = BYTES.dup
        status = yield out
        bytes = text(*out.unpack("JJ"))
        return bytes if status.zero?

        raise ServerError.new(status: status, body: bytes) if status.positive?

        raise error_of(status), bytes
      ensure
        # Untouched it is empty, and freeing nothing is nothing.
        @free.call(out)
      end

      def text(at, size)
        (size.zero? ? +"" : Fiddle::Pointer.new(at)[0, size]).force_encoding(Encoding::UTF_8)
      end

      def error_of(status)
        { FORKED => Forked, PANICKED => Panicked }.fetch(status, EngineError)
      end
    end
  end
end
