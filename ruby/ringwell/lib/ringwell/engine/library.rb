# frozen_string_literal: true

require "rbconfig"

module Ringwell
  class Engine
    # The engine's library: finds it, chooses the driver, and explains its statuses.
    #
    # Two drivers with the same methods call it: the C shim if it was compiled, else {ByFiddle}. A
    # call that takes microseconds keeps the GVL. If it released the GVL, it might have to wait for
    # another thread's 100 ms time slice to get it back. Calls that wait for the disk release the
    # GVL.
    class Library
      ABI_VERSION = 1

      FORKED = -2
      PANICKED = -3

      class << self
        # The library's path: RINGWELL_EMBED, the library in the gem or compiled during
        # installation, or cargo's build in the repository.
        #
        # @raise [ConfigError] there is none
        def path(environment = ENV)
          given = environment["RINGWELL_EMBED"]
          found = [*given, *places(environment)].find { |place| File.file?(place) }
          return found if found && (given.nil? || given == found)

          raise ConfigError, "no engine at #{given}: RINGWELL_EMBED must be the library's path" if given

          raise ConfigError, "this gem has no engine for #{RUBY_PLATFORM}: install Rust " \
                             "(https://rustup.rs) and the gem again, or set RINGWELL_EMBED to " \
                             "lib#{NAME}"
        end

        # The best driver: the shim, if it was compiled for this Ruby.
        #
        # @return [Symbol] :shim or :fiddle
        def driver(ruby = RbConfig::CONFIG["ruby_version"])
          require "ringwell/engine/#{ruby}/shim"
          :shim
        rescue LoadError
          :fiddle
        end

        # The meaning of a status other than 0. Called by the drivers.
        #
        # @raise [ServerError, EngineError]
        def refuse(status, bytes)
          raise ServerError.new(status: status, body: bytes) if status.positive?

          raise({FORKED => Forked, PANICKED => Panicked}.fetch(status, EngineError), bytes)
        end

        NAME = "ringwell_embed.#{RbConfig::CONFIG["SOEXT"]}"
        private_constant :NAME

        private

        def places(environment)
          root = File.expand_path("../../../../..", __dir__)
          targets = [*environment["CARGO_TARGET_DIR"], "#{root}/target"]
          built = targets.product(%w[release debug]).map { |parts| parts.join("/") }
          installed = $LOAD_PATH.map { |folder| "#{folder}/ringwell/engine" }
          [__dir__, *installed, *built].map { |folder| "#{folder}/lib#{NAME}" }
        end
      end

      # @return [String] the library's path
      attr_reader :path

      # @return [Symbol] :shim or :fiddle
      attr_reader :driver

      # @param release_gvl [Boolean] whether `bulk` releases the GVL too
      # @param driver [Symbol, nil] :shim or :fiddle; by default, the best one
      def initialize(path = Library.path, release_gvl: false, driver: nil)
        @path = path
        @driver = driver || Library.driver
        @calls = driver_class.new(path, release_gvl)
        check(@calls.abi_version)
      rescue LoadError => error
        raise AbiMismatch, "#{path} is not an engine: #{error.message}"
      end

      # @param version [Integer] the library's version
      # @raise [AbiMismatch] if the version differs from the gem's
      def check(version)
        version == ABI_VERSION or
          raise AbiMismatch, "#{path} has version #{version} of the interface, this gem needs " \
                             "#{ABI_VERSION}: use the library of the same release"
      end

      # @return [Integer] a handle
      def open(options) = @calls.open(options)

      # @param milliseconds [Integer] 0 for the configured deadline
      # @return [String] the answer's bytes
      def bulk(handle, body, key, milliseconds) = @calls.bulk(handle, body, key, milliseconds)

      # @param name [Symbol] :status, :flush, :snapshot or :close
      # @return [String] the answer's bytes
      def ask(name, handle) = @calls.public_send(name, handle)

      private

      # Fiddle, a separate gem since Ruby 4.0, is loaded only when needed.
      def driver_class
        return Shim if driver == :shim && Library.driver == :shim
        raise ConfigError, "there is no driver #{driver.inspect} here" unless driver == :fiddle

        require_relative "by_fiddle"
        ByFiddle
      end
    end
  end
end
