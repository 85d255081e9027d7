# frozen_string_literal: true

module Ringwell
  # Makes the requests of one source of numbers, from what it knows about its pools. What the JSON
  # of many rows has in common is written once: a row's beginning, and the names of parameters.
  class Rows
    # The most beginnings and names that are kept.
    KEPT_MAX = 10_000

    # @param keys [Hash{String => String}] by pool
    # @param overflow [Hash{String => String}] by pool; may grow
    def initialize(keys = {}, overflow = {})
      @keys = keys
      @overflow = overflow
      @heads = {}
      @names = {}
    end

    # @return [Hash{String => String}] by pool
    attr_reader :keys

    # One row. The fields are those of {Request#initialize}, the pool may be an Integer.
    #
    # @return [Request]
    # @raise [ArgumentError] names what cannot be sent
    def make(pool, key, params, request_id, overflow, visitor)
      pool = pool.to_s unless pool.is_a?(String)
      Request.allocate.fill(self, pool, key || @keys[pool], params, request_id, overflow || @overflow[pool], visitor)
    end

    # A row's pool, key and beginning, all frozen.
    #
    # @return [Array(String, String, String)]
    # @raise [ArgumentError] names what cannot be sent
    def head(pool, key)
      kept = @heads[pool]
      return kept if kept && kept[1] == key

      head = new_head(pool, key)
      @heads[head[0]] = head if @heads.size < KEPT_MAX
      head
    end

    # A parameter's name, with what stands around it.
    #
    # @return [String] frozen
    # @raise [ArgumentError] the API reads a parameter of this name itself
    def name(name)
      kept = @names[name]
      return kept if kept

      text = name.to_s
      Request::RESERVED.include?(text) and
        raise ArgumentError, "#{text} is no parameter, the API reads it itself"
      written = "&#{CGI.escape(text)}=".freeze
      @names[name.dup.freeze] = written if @names.size < KEPT_MAX
      written
    end

    private

    def new_head(pool, key)
      Request::POOL.match?(pool) or raise ArgumentError, "pool must be an id, got #{pool.inspect}"
      key.is_a?(String) && !key.empty? or raise ArgumentError, "key of pool #{pool} is missing"
      suffix = "#{pool}/allocate_number.json?ring_pool_key=#{CGI.escape(key)}"
      [pool.dup.freeze, key.dup.freeze, "{\"api_suffix\":\"#{suffix}".freeze].freeze
    end
  end
end
