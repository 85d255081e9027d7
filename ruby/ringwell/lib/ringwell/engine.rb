# frozen_string_literal: true

require_relative "base"

module Ringwell
  # Numbers from an engine in this process: no server, no socket, but the server's own code and
  # files.
  #
  #     engine = Ringwell::Engine.open(config: "ringwell.toml")
  #     engine.allocate("42", key: key, params: { m1: "autos" }).number
  #
  # A call takes microseconds, or with durability "disk" as long as the disk takes; it blocks its
  # thread and holds the GVL for that time. Only one process has the data: open it after a fork, in
  # one worker.
  class Engine
    include Allocator

    class << self
      # Opens an engine; with a block, closes it afterwards.
      #
      # @param config [String, nil] path of a configuration file of the server
      # @param data [String, nil] the directory of journals; overrides the file
      # @param durability [String, Symbol, nil] disk, os or memory; overrides the file
      # @param ring_pools [Enumerable<Hash>, nil] instead of a file: `id:`, `key:`, `numbers:`, and
      #   perhaps `overflow:`, `lifetime:` (seconds, 1800), `tracking_url:` with `destination_url:`
      # @param deadline [Numeric, nil] seconds; overrides the file
      # @param more what {#initialize} takes
      # @raise [EngineError] the configuration is wrong, or the data is in use or damaged
      # @raise [ConfigError] there is no library
      # @raise [AbiMismatch] the library is another release's
      def open(config: nil, data: nil, durability: nil, ring_pools: nil, deadline: nil, **more)
        pools = ring_pools&.map { |pool| pool_json(**pool) }
        milliseconds = (deadline * 1000).ceil if deadline
        options = {config:, data:, durability:, pools:, deadline_ms: milliseconds}.compact
        engine = new_or_again(JSON.generate(options), **more)
        return engine unless block_given?

        begin
          yield engine
        ensure
          engine.close
        end
      end

      private

      # Closes a dropped engine when its object is collected. It may still hold the data or one of
      # 64 slots.
      def new_or_again(options, **more)
        new(options, **more)
      rescue EngineError => error
        raise unless error.message.match?(/in use by process #{Process.pid}\b|engines already/)

        GC.start
        new(options, **more)
      end

      def pool_json(id:, key:, numbers:, overflow: nil, lifetime: 1800, **more)
        {id: Integer(id), ring_pool_key: key, numbers: numbers.to_a, lifetime_seconds: lifetime,
          overflow_number: overflow, **more}.compact
      end
    end

    # Closes an engine whose object has been collected. A class method, so that it does not keep the
    # object alive.
    #
    # @return [Proc]
    def self.closing(library, handle)
      proc do
        library.ask(:close, handle)
      rescue EngineError
        # No caller is left to get the error; all answered allocations are stored.
      end
    end
    private_class_method :closing

    # @param options [String] JSON, see docs/spec/embed.md; {Engine.open} makes it
    # @param release_gvl [Boolean] whether other threads run during a batch: useful if disks take
    #   milliseconds, otherwise a loss, because the GVL may come back 100 ms later
    # @param library [String] path of the library
    # @param driver [Symbol, nil] :shim or :fiddle; by default the shim in C, if it was compiled
    # @param pools [Enumerable<Pool>] keys and overflow numbers of pools that are used often
    # @param overflow [Hash] pool ids and their overflow numbers
    # @param instrumenter [#instrument, Symbol, nil] :active_support for ActiveSupport::Notifications
    #   as soon as it is loaded
    def initialize(options, release_gvl: false, library: Library.path, driver: nil, pools: [],
      overflow: {}, instrumenter: :active_support)
      @library = Library.new(library, release_gvl: release_gvl, driver: driver)
      @handle = @library.open(options)
      ObjectSpace.define_finalizer(self, self.class.send(:closing, @library, @handle))
      @deadline = status.fetch("deadline_ms") / 1000.0
      know(pools, overflow, instrumenter)
    end

    # Its state and counters: "journal" is "writing", "full" or "failed"; "notes" are for the log.
    #
    # @return [Hash{String => Object}]
    def status = JSON.parse(@library.ask(:status, @handle))

    # Takes a snapshot, which shortens the next start. May take seconds.
    def snapshot = @library.ask(:snapshot, @handle) && self

    # Stores what a full disk has delayed; all other answered allocations are stored already.
    #
    # @raise [EngineError] the disk is still full
    def flush = @library.ask(:flush, @handle) && self

    # Takes a snapshot and releases the data. A second call does nothing; in a forked child the
    # parent's engine keeps running.
    #
    # @raise [EngineError] an unanswered allocation is not stored
    def close
      handle, @handle = @handle, 0
      return if handle.zero?

      ObjectSpace.undefine_finalizer(self)
      @library.ask(:close, handle)
      nil
    rescue Forked
      # Only released here; it belongs to the parent.
    end

    # The way of calling the library: :shim (in C) or :fiddle.
    #
    # @return [Symbol]
    def driver = @library.driver

    # Whether it is open and its journal accepts records.
    #
    # @return [Boolean]
    def ready?
      !closed? && status["journal"] == "writing"
    rescue EngineError
      false
    end

    # Whether it was closed here.
    def closed? = @handle.zero?

    # Keys and numbers must not appear in a log.
    def inspect = "#<#{self.class.name} #{@library.path}#{" closed" if closed?}>"

    private

    def exchange(body, seconds, idempotency_key, _payload)
      milliseconds = seconds ? [(seconds * 1000).ceil, 1].max : 0
      @library.bulk(@handle, body, idempotency_key, milliseconds)
    end
  end
end

require_relative "engine/library"
