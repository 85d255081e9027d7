# frozen_string_literal: true

require "socket"
require "json"
require "cgi/escape"

require_relative "version"
require_relative "errors"
require_relative "value"
require_relative "request"
require_relative "rows"
require_relative "allocation"
require_relative "batch"
require_relative "plain_answer"
require_relative "builder"
require_relative "instrumentation"
require_relative "allocator"
require_relative "deadline"
require_relative "endpoint"
require_relative "addresses"
require_relative "endpoints"
require_relative "response"
require_relative "connection"
require_relative "connections"
require_relative "headers"
require_relative "client"

# Gets numbers from a Ringwell server, in plain sequential Ruby.
#
# The only global state is the default client, which only the Rails view helper uses. Other parts
# have their own files to require: "ringwell/fake", "ringwell/rack", "ringwell/rails".
module Ringwell
  class << self
    # Sets the default instance, a {Client} or another source of numbers; nil removes it.
    #
    # @return [Allocator, nil]
    attr_writer :client

    # The default instance, if one was set.
    #
    # @return [Allocator, nil]
    def client? = @client

    # The default instance.
    #
    # @return [Allocator]
    # @raise [ConfigError] if none was set
    def client
      @client or raise ConfigError, "Ringwell.client is not set: " \
                                    "Ringwell.client = Ringwell::Client.new(\"http://…\")"
    end
  end
end
