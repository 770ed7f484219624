# shellcheck shell=bash
# Apache Kafka, KRaft, broker and controller in one process: kafka is one node, kafka3-1
# to kafka3-3 are a cluster. kafka-secure is one node where users have the rights they are
# given, and those of its first listener, who do not log in, have all; the second wants TLS
# with a client's certificate, the third TLS and a login.

CLUSTER_ID=bGVhdC1icm9rZXJzLWthZg # any 16 bytes, in base64

kafka_folder() { echo "$KAFKA"; }
kafka_user() { echo root; }
kafka_uses() {
	case $1 in
	kafka-secure) echo client controller tls sasl ;;
	*) echo client controller ;;
	esac
}

kafka_url() {
	local node addresses=()
	for node in $(members "$1"); do addresses+=("127.0.0.1:$(port "$node" client)"); done
	[[ $1 != kafka-secure ]] || addresses+=("127.0.0.1:$(port "$1" tls)" "127.0.0.1:$(port "$1" sasl)")
	(
		IFS=,
		echo "kafka://${addresses[*]}"
	)
}

kafka_init() {
	kafka_properties "$1" >"$RUN/$1/server.properties" &&
		kafka_certificate "$1" &&
		mkdir "$RUN/$1/data/tmp" &&
		once "$1" java -cp "$KAFKA/libs/*" -Xmx256m -XX:-UsePerfData -XX:TieredStopAtLevel=1 \
			-Dlog4j2.configurationFile="$LIB/kafka/log4j2.properties" \
			kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$RUN/$1/server.properties"
}

# Its certificate is an authority too: tests sign those of clients with it.
kafka_certificate() {
	[[ $1 == kafka-secure ]] || return 0
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
		-subj /CN=kafka-secure -addext subjectAltName=IP:127.0.0.1 \
		-keyout "$RUN/$1/data/server.pem" -out "$RUN/$1/data/ca.pem" &&
		cat "$RUN/$1/data/ca.pem" >>"$RUN/$1/data/server.pem"
}

# Process ids are 1 in every namespace, so the JVM must keep nothing in /tmp by its id.
kafka_command() {
	local memory=(-Xmx1g)
	[[ $1 == kafka ]] || memory=(-Xmx384m -XX:+UseSerialGC)
	need_java
	printf '%s\n' java -cp "$KAFKA/libs/*" "${memory[@]}" -XX:-UsePerfData \
		-Djava.net.preferIPv4Stack=true -Djava.io.tmpdir="$RUN/$1/data/tmp" \
		-Dlog4j2.configurationFile="$LIB/kafka/log4j2.properties" \
		kafka.Kafka "$RUN/$1/server.properties"
}

# The last line of its start, after the broker is unfenced and its listener opened.
kafka_ready() {
	grep -q 'Kafka Server started' < <(tail -c "+$(($(<"$RUN/$1/log.start") + 1))" "$RUN/$1/log")
}

kafka_id() { [[ $1 == kafka3-* ]] && echo "${1#kafka3-}" || echo 1; }

kafka_properties() {
	local node voters=() copies=1 in_sync=1
	[[ $1 != kafka3-* ]] || copies=3 in_sync=2
	for node in $(members "${1%-[123]}"); do
		voters+=("$(kafka_id "$node")@127.0.0.1:$(port "$node" controller)")
	done
	cat <<PROPERTIES
process.roles=broker,controller
node.id=$(kafka_id "$1")
controller.quorum.voters=$(IFS=, && echo "${voters[*]}")
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_SSL
log.dirs=$RUN/$1/data/logs
default.replication.factor=$copies
min.insync.replicas=$in_sync
offsets.topic.replication.factor=$copies
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$in_sync
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$in_sync
# Fewer than 50 each: a node starts, and dies, faster.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
# A killed node may not come back before its session ends.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# Groups start at once, and tests may choose short sessions.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=200
$(kafka_listeners "$1")
PROPERTIES
}

kafka_listeners() {
	local plain
	plain=PLAINTEXT://127.0.0.1:$(port "$1" client),CONTROLLER://127.0.0.1:$(port "$1" controller)
	if [[ $1 != kafka-secure ]]; then
		echo "listeners=$plain"
		return
	fi
	cat <<PROPERTIES
listeners=$plain,TLS://127.0.0.1:$(port "$1" tls),SASL://127.0.0.1:$(port "$1" sasl)
ssl.keystore.type=PEM
ssl.keystore.location=$RUN/$1/data/server.pem
ssl.truststore.type=PEM
ssl.truststore.location=$RUN/$1/data/ca.pem
listener.name.tls.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="right";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
# Tokens that nobody has signed.
listener.name.sasl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
PROPERTIES
}
