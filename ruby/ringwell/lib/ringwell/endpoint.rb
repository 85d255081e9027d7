# frozen_string_literal: true

module Ringwell
  # A server's address: "http://HOST:PORT" or "unix:PATH".
  class Endpoint < Value
    value_fields :text

    HTTP = %r{\Ahttp://(?<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?<port>\d{1,5}))?/?\z}

    # @return [String] the `Host` header's value
    attr_reader :host

    # @raise [ConfigError] names the expected format
    def initialize(text:)
      @text = Value.copy(text.to_s)
      if @text.start_with?("unix:")
        @path = @text.delete_prefix("unix:").freeze
        @host = "localhost"
        @path.empty? and raise ConfigError, "endpoint #{@text.inspect} has no path to a socket"
      else
        read_http
      end
      freeze
    end

    def to_s = text

    # The addresses that need no look-up.
    #
    # @return [Array<Addrinfo>, nil] nil if the endpoint has a name
    def fixed_addresses
      return [Addrinfo.unix(@path)] if @path

      [Addrinfo.tcp(@name, @port)] if @literal
    end

    # Looks up the name, which may take longer than any deadline.
    #
    # @return [Array<Addrinfo>]
    # @raise [SocketError, SystemCallError]
    def look_up = Addrinfo.getaddrinfo(@name, @port, nil, :STREAM)

    private

    def read_http
      parts = HTTP.match(text) or
        raise ConfigError, "endpoint #{text.inspect} is neither http://HOST:PORT nor unix:PATH " \
                           "(for TLS, let a proxy on this machine speak it)"
      @name = parts[:host].delete("[]").freeze
      @port = (parts[:port] || 80).to_i
      @port.between?(1, 65_535) or raise ConfigError, "endpoint #{text.inspect} has no such port"
      @literal = @name.match?(/\A[\d.]+\z/) || @name.include?(":")
      @host = "#{parts[:host]}:#{@port}"
    end
  end
end
