# frozen_string_literal: true

module Ringwell
  # Caches the parts that a source's rows have in common: the pools' keys, and the JSON for row
  # starts and parameter names, which is written only once.
  class Rows
    # The maximum number of cached starts, and of cached names.
    KEPT_MAX = 10_000

    # @param keys [Hash{String => String}] by pool
    def initialize(keys = {})
      @keys = keys
      @heads = {}
      @names = {}
    end

    # @return [Hash{String => String}] by pool
    attr_reader :keys
    # @return [Hash{String => Array(String, String, String)}] by pool, see {#head}
    attr_reader :heads
    # @return [Hash{String, Symbol => String}] see {#name}
    attr_reader :names

    # A row's pool, key and start, all frozen. Each call creates them again; {#heads} caches them.
    #
    # @return [Array(String, String, String)]
    # @raise [ArgumentError] names the part that cannot be sent
    def head(pool, key)
      Request::POOL.match?(pool) or raise ArgumentError, "pool must be an id, got #{pool.inspect}"
      key.is_a?(String) && !key.empty? or raise ArgumentError, "key of pool #{pool} is missing"
      suffix = "#{pool}/allocate_number.json?ring_pool_key=#{CGI.escape(key)}"
      head = [pool.dup.freeze, key.dup.freeze, "{\"api_suffix\":\"#{suffix}".freeze].freeze
      @heads[head[0]] = head if @heads.size < KEPT_MAX
      head
    end

    # A parameter's name, with the JSON around it. Each call creates it again; {#names} caches it.
    #
    # @return [String] frozen
    # @raise [ArgumentError] the name is one of {Request::RESERVED}
    def name(name)
      text = name.to_s
      Request::RESERVED.include?(text) and
        raise ArgumentError, "#{text} cannot be a parameter: the API reads it itself"
      written = "&#{CGI.escape(text)}=".freeze
      @names[name.dup.freeze] = written if @names.size < KEPT_MAX
      written
    end
  end
end
