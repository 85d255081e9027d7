# frozen_string_literal: true

module Ringwell
  # Where a server listens: "http://HOST:PORT" or "unix:PATH".
  class Endpoint < Value
    value_fields :text

    HTTP = %r{\Ahttp://(?<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?<port>\d{1,5}))?/?\z}

    # @return [String] for the header of that name
    attr_reader :host

    # @raise [ConfigError] says what was expected
    def initialize(text:)
      @text = Value.copy(text.to_s)
      if @text.start_with?("unix:")
        @path = @text.delete_prefix("unix:").freeze
        @host = "localhost"
        @path.empty? and raise ConfigError, "endpoint #{@text.inspect} names no socket"
      else
        read_http
      end
      freeze
    end

    def to_s = text

    # The addresses to try, in this order. Looking up a name may take longer than anybody has time,
    # and cannot be interrupted: that is done by a thread which nobody waits for then.
    #
    # @return [Array<Addrinfo>]
    # @raise [ConnectError, DeadlineExceeded]
    def addresses(deadline)
      return [Addrinfo.unix(@path)] if @path
      return [Addrinfo.tcp(@name, @port)] if @literal

      lookup = Thread.new { Addrinfo.getaddrinfo(@name, @port, nil, :STREAM) }
      lookup.report_on_exception = false
      lookup.join(deadline.left!("address of #{self}")) or deadline.left!("address of #{self}")
      lookup.value
    rescue SocketError => error
      raise ConnectError, "#{self}: #{error.message}"
    end

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
