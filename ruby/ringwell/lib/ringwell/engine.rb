# frozen_string_literal: true

require_relative "base"

module Ringwell
  # Gets numbers from an engine in this process. There is no server and no socket, but the code and
  # files are the server's.
  #
  #     engine = Ringwell::Engine.open(config: "ringwell.toml")
  #     engine.allocate("42", key: key, params: { m1: "autos" }).number
  #
  # A call takes microseconds or, with durability "disk", as long as the disk takes. It blocks its
  # thread and holds the GVL for that time. Only one process can open the data: open it after a
  # fork, in one worker.
  class Engine
    include Allocator

    class << self
      # Opens an engine; with a block, closes it afterwards.
      #
      # @param config [String, nil] path of a server's configuration file
      # @param data [String, nil] the journal directory; overrides the file
      # @param durability [String, Symbol, nil] disk, os or memory; overrides the file
      # @param ring_pools [Enumerable<Hash>, nil] instead of a file: `id:`, `key:`, `numbers:`, and
      #   optionally `overflow:`, `lifetime:` (seconds, by default 1800), `tracking_url:` with
      #   `destination_url:`
      # @param deadline [Numeric, nil] seconds; overrides the file
      # @param more the keywords of {#initialize}
      # @raise [EngineError] the configuration is invalid, or the data is in use or damaged
      # @raise [ConfigError] there is no library
      # @raise [AbiMismatch] the library is from another release
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

      # If no engine can be opened, collects garbage and tries again: an engine that was dropped but
      # not collected may still hold the data, or one of 64 slots.
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

    # Returns a block that closes an engine whose object has been collected. This is a class method
    # so that the block does not keep the object alive.
    #
    # @return [Proc]
    def self.closing(library, handle)
      proc do
        library.ask(:close, handle)
      rescue EngineError
        # No caller is left to receive the error. All answered allocations are stored.
      end
    end
    private_class_method :closing

    # @param options [String] JSON, see docs/spec/embed.md; {Engine.open} makes it
    # @param release_gvl [Boolean] whether other threads run during a batch. This helps if the disk
    #   takes milliseconds. Otherwise it costs time, because another thread may keep the GVL for
    #   100 ms
    # @param library [String] path of the library
    # @param driver [Symbol, nil] :shim or :fiddle; by default, the C shim, if it was compiled
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

    # The engine's state and counters: "journal" is "writing", "full" or "failed"; "notes" are for
    # the log.
    #
    # @return [Hash{String => Object}]
    def status = JSON.parse(@library.ask(:status, @handle))

    # Takes a snapshot, which shortens the next startup. May take seconds.
    def snapshot = @library.ask(:snapshot, @handle) && self

    # Stores allocations that a full disk has delayed. All other answered allocations are already
    # stored.
    #
    # @raise [EngineError] the disk is still full
    def flush = @library.ask(:flush, @handle) && self

    # Takes a snapshot and releases the data. A second call does nothing. If a forked child calls
    # it, the parent's engine keeps running.
    #
    # @raise [EngineError] an unanswered allocation is not stored
    def close
      handle, @handle = @handle, 0
      return if handle.zero?

      ObjectSpace.undefine_finalizer(self)
      @library.ask(:close, handle)
      nil
    rescue Forked
      # The engine belongs to the parent and is only released here.
    end

    # The driver that calls the library: :shim (in C) or :fiddle.
    #
    # @return [Symbol]
    def driver = @library.driver

    # Whether the engine is open and its journal accepts records.
    #
    # @return [Boolean]
    def ready?
      !closed? && status["journal"] == "writing"
    rescue EngineError
      false
    end

    # Whether this process has closed the engine.
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
